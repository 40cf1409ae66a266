package vector_test

import (
	"errors"
	"strings"
	"testing"

	"weir/datapath/internal/vector"
)

const text = `# A file.
law sum

case one
config step=2
state total=5 last=[0,7]
do add now_ns=18446744073709551615
is total=7 last=[3,0,9] result=1 # why
`

type sum struct {
	config, state struct {
		Step, Total uint64
		Last        [3]uint8
	}
	MSSBytes, WindowQ8 uint8
}

func (s *sum) Begin(config, state vector.Fields) error {
	if err := config.Into(&s.config); err != nil {
		return err
	}
	return state.Into(&s.state)
}

func (s *sum) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	if event != "add" || args.Get("now_ns") != 1<<64-1 || s.state.Last != [3]uint8{0, 7, 0} {
		return nil, 0, errors.New("misread")
	}
	s.state.Total += s.config.Step
	s.state.Last = [3]uint8{3, 0, 9}
	return vector.Of(s.state), 1, nil
}

// A file is read, run, and written unchanged. Run finds a wrong expectation, and Update corrects it.
func TestFileGoesThrough(t *testing.T) {
	f, err := vector.Parse("text", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if checked, wrong, err := f.Run(&sum{}); checked != 1 || len(wrong) != 0 || err != nil {
		t.Fatalf("%d checked, %v, %v", checked, wrong, err)
	}
	for _, other := range []string{
		strings.Replace(text, "is total=7", "is total=8", 1),
		strings.Replace(text, "result=1 ", "", 1),
		strings.Replace(text, "[3,0,9]", "[3]", 1),
		strings.Replace(text, "result=1 ", "result=1 more=1 ", 1),
	} {
		f, err := vector.Parse("other", strings.NewReader(other))
		if err != nil {
			t.Fatal(err)
		}
		if _, wrong, err := f.Run(&sum{}); len(wrong) != 1 || wrong[0].Line != 8 || err != nil {
			t.Errorf("%s\n%v, %v", other, wrong, err)
		}
		if err := f.Update(&sum{}); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := f.Write(&out); err != nil || out.String() != text {
			t.Errorf("written as\n%s", out.String())
		}
	}
}

// Parse refuses a line that it does not understand, and names the line.
func TestFileIsStrict(t *testing.T) {
	for _, bad := range []string{
		"case no law\n",
		"law x\nif total=1\n",
		"law x\ndo\n",
		"law x\nstate total\n",
		"law x\nstate total=-1\n",
		"law x\nstate total=18446744073709551616\n",
		"law x\nstate total=1,2\n",
		"law x\nstate total=[1,2\n",
		"law x\nstate =1\n",
	} {
		if f, err := vector.Parse("bad", strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, f)
		} else if strings.Count(bad, "\n") == 2 && !strings.HasPrefix(err.Error(), "bad:2:") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{
		"law x\nis total=1\n",
		"law x\ndo add\ndo add\nis\n",
		strings.Replace(text, "is total", "do add\n# total", 1),
		strings.Replace(text, "step=2", "stop=2", 1),
		strings.Replace(text, "[0,7]", "[0,256]", 1),
		strings.Replace(text, "[0,7]", "[0,7,0,1]", 1),
	} {
		f, err := vector.Parse("bad", strings.NewReader(bad))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Run(&sum{}); err == nil {
			t.Errorf("%q ran", bad)
		}
	}
}

func TestNamesOfFields(t *testing.T) {
	got := vector.Of(sum{MSSBytes: 1, WindowQ8: 2})
	if want := (vector.Fields{{Key: "mss_bytes", Value: 1}, {Key: "window_q8", Value: 2}}); !got.Equal(want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// Elements that are 0 may be named or not. A list ends with its last element that is not 0.
func TestArraysAreWritten(t *testing.T) {
	for _, c := range []struct {
		fields vector.Fields
		want   string
	}{
		{vector.Fields{{Key: "last.0", Value: 0}}, " last=[0]"},
		{vector.Fields{{Key: "last.0", Value: 3}, {Key: "last.1", Value: 0}}, " last=[3]"},
		{vector.Fields{{Key: "last.1", Value: 7}, {Key: "last.2", Value: 0}, {Key: "total", Value: 5}}, " last=[0,7] total=5"},
		{vector.Fields{{Key: "last.2", Value: 7}, {Key: "next.0", Value: 1}}, " last=[0,0,7] next=[1]"},
		{vector.Fields{{Key: "total", Value: 0}, {Key: "last.0", Value: 1}, {Key: "last.2", Value: 2}}, " total=0 last=[1,0,2]"},
		{vector.Fields{{Key: "last.1", Value: 7}, {Key: "last.1", Value: 7}}, " last=[0,7]"},
		{vector.Fields{{Key: "last.2", Value: 7}, {Key: "last.1", Value: 3}}, " last=[0,3,7]"},
		{vector.Fields{{Key: "last.01", Value: 7}}, " last.01=7"},
		{vector.Fields{{Key: "last.one", Value: 7}, {Key: "last.99999999", Value: 1}}, " last.one=7 last.99999999=1"},
	} {
		if got := c.fields.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		f, err := vector.Parse("written", strings.NewReader("law x\nstate"+c.want+"\n"))
		if err != nil || !f.Lines[1].Fields.Equal(c.fields) {
			t.Errorf("%q is read as %v, %v", c.want, f, err)
		}
	}
}
