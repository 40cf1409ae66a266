package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/sim/event"
	"weir/sim/network"
)

// The language of testdata/*.script, similar to packetdrill's. A line is
//
//	TIME[~TOLERANCE] VERB ARGUMENTS    # comment
//
// TIME is seconds with a unit (0, 1.5s, 200ms) from the start, or with + from the line before. An expected packet must
// be sent exactly then, or within the tolerance. Nothing else may be sent.
//
//	config base=CONTROL KEY=VALUE ...
//	                       without a time, before all else: Default(CONTROL), and fields of Config and
//	                       ControlOptions in snake_case; on, off, 200ms
//	dial | listen          makes the endpoint under test; the script is its peer
//	inject PACKET          the endpoint receives it
//	expect PACKET          the endpoint sends it
//	quiet                  the endpoint sent nothing since the line before
//	write N | close | abort | pause | resume
//	state KEY=VALUE ...    also KEY>=VALUE, KEY<=VALUE; keys: see named and inspect
//
// PACKET is FLAGS FROM:TO [ack N] [win N] [mss N] [scale N] [sackok | plain]
// [sack A:B,C:D | nosack] [notect|ect0|ect1|ce] [xN].
// FLAGS are of S F R P . (ACK) U E (ECE) W (CWR) A (AE). Sequence numbers count from the sender's initial one, whose
// SYN is 0: data begins at 1. win is the header's field, not scaled. plain is a SYN without scale and sackok. FROM:TO
// is payload; SYN and FIN take the number after it. Fields that are not written are not compared. Flags and FROM:TO are
// required, * stands for any, and PSH is never compared. xN stands for N packets with consecutive payload of the same
// size.
type script struct {
	file   string
	config []setting
	steps  []step
}

type setting struct{ key, op, value string }

type step struct {
	line      int
	at        event.Time
	relative  bool
	tolerance event.Time
	verb      string
	packet    packetSpec
	number    int64 // write
	settings  []setting
	text      string
}

// packetSpec is a packet as a script writes it. Numbers that were not written are -1.
type packetSpec struct {
	flags              uint16
	from, to, ack      int64
	window, mss, scale int64
	ecn                int64
	sackOK, plain      bool
	sack               [][2]int64
	noSack             bool
	repeat             int
}

var flagLetters = []struct {
	letter byte
	flag   uint16
}{
	{'S', network.SYN}, {'F', network.FIN}, {'R', network.RST}, {'P', network.PSH}, {'.', network.ACK},
	{'U', network.URG}, {'E', network.ECE}, {'W', network.CWR}, {'A', network.AE},
}

var ecnNames = []string{"notect", "ect1", "ect0", "ce"} // by Packet.ECN

// parseScript reads a script. An error names file and line.
func parseScript(file string, r io.Reader) (*script, error) {
	s := &script{file: file}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if err := s.add(n, words); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	return s, lines.Err()
}

func (s *script) add(line int, words []string) error {
	if words[0] == "config" {
		settings, err := parseSettings(words[1:], "=")
		s.config = append(s.config, settings...)
		return err
	}
	if len(words) < 2 {
		return fmt.Errorf("%q: a time and what happens then", words[0])
	}
	st := step{line: line, verb: words[1], text: strings.Join(words[1:], " ")}
	if err := st.parseTime(words[0]); err != nil {
		return err
	}
	if err := st.parseArguments(words[2:]); err != nil {
		return err
	}
	s.steps = append(s.steps, st)
	return nil
}

func (st *step) parseTime(word string) (err error) {
	at, tolerance, has := strings.Cut(word, "~")
	if has {
		if st.tolerance, err = parseDuration(tolerance); err != nil {
			return err
		}
	}
	st.relative = strings.HasPrefix(at, "+")
	st.at, err = parseDuration(strings.TrimPrefix(at, "+"))
	return err
}

func (st *step) parseArguments(words []string) (err error) {
	switch st.verb {
	case "inject", "expect":
		st.packet, err = parsePacket(words)
		if err == nil && st.verb == "inject" && st.packet.from < 0 {
			err = errors.New("what is injected needs FROM:TO")
		}
		return err
	case "state":
		st.settings, err = parseSettings(words, ">=", "<=", "=")
		return err
	case "write":
		if len(words) != 1 {
			return errors.New("write takes a number of bytes")
		}
		st.number, err = strconv.ParseInt(words[0], 10, 64)
		return err
	case "dial", "listen", "quiet", "close", "abort", "pause", "resume":
		if len(words) > 0 {
			return fmt.Errorf("%s takes no arguments, not %q", st.verb, words[0])
		}
		return nil
	}
	return fmt.Errorf("%q is not something that can happen", st.verb)
}

func parseSettings(words []string, operators ...string) ([]setting, error) {
	var out []setting
next:
	for _, w := range words {
		for _, op := range operators {
			if key, value, ok := strings.Cut(w, op); ok && key != "" && value != "" {
				out = append(out, setting{key, op, value})
				continue next
			}
		}
		return nil, fmt.Errorf("%q: KEY=VALUE", w)
	}
	if len(out) == 0 {
		return nil, errors.New("at least one KEY=VALUE")
	}
	return out, nil
}

func parsePacket(words []string) (packetSpec, error) {
	p := packetSpec{ack: -1, window: -1, mss: -1, scale: -1, ecn: -1, repeat: 1}
	if len(words) < 2 {
		return p, errors.New("a packet is FLAGS FROM:TO ...")
	}
	if err := p.parseFlags(words[0]); err != nil {
		return p, err
	}
	var err error
	if p.from, p.to, err = parseRange(words[1]); err != nil {
		return p, err
	}
	for i := 2; i < len(words); i++ {
		taken, err := p.parseField(words[i:])
		if err != nil {
			return p, err
		}
		i += taken
	}
	switch {
	case p.flags&network.ACK == 0 && p.ack >= 0:
		return p, errors.New("ack N without the flag")
	case p.from < 0 && p.repeat > 1:
		return p, errors.New("xN needs FROM:TO")
	}
	return p, nil
}

func (p *packetSpec) parseFlags(word string) error {
next:
	for i := range len(word) {
		for _, f := range flagLetters {
			if f.letter == word[i] {
				p.flags |= f.flag
				continue next
			}
		}
		return fmt.Errorf("%q is no flag of S F R P . U E W A", word[i])
	}
	return nil
}

// parseField reads the field at the front, and returns how many more words it took.
func (p *packetSpec) parseField(words []string) (int, error) {
	for i, name := range ecnNames {
		if words[0] == name {
			p.ecn = int64(i)
			return 0, nil
		}
	}
	switch words[0] {
	case "sackok":
		p.sackOK = true
		return 0, nil
	case "plain":
		p.plain = true
		return 0, nil
	case "nosack":
		p.noSack = true
		return 0, nil
	}
	if n, ok := strings.CutPrefix(words[0], "x"); ok {
		repeat, err := strconv.Atoi(n)
		if err != nil || repeat < 1 || repeat > 10_000 {
			return 0, fmt.Errorf("%q: x1 to x10000", words[0])
		}
		p.repeat = repeat
		return 0, nil
	}
	to, ok := map[string]*int64{"ack": &p.ack, "win": &p.window, "mss": &p.mss, "scale": &p.scale}[words[0]]
	if !ok && words[0] != "sack" {
		return 0, fmt.Errorf("%q is no field of a packet", words[0])
	}
	if len(words) < 2 {
		return 0, fmt.Errorf("%s lacks its value", words[0])
	}
	if ok {
		n, err := strconv.ParseInt(words[1], 10, 64)
		*to = n
		return 1, err
	}
	for _, block := range strings.Split(words[1], ",") {
		from, end, err := parseRange(block)
		if err != nil || from < 0 {
			return 1, fmt.Errorf("%q: FROM:TO", block)
		}
		p.sack = append(p.sack, [2]int64{from, end})
	}
	if len(p.sack) > 4 {
		return 1, errors.New("at most four SACK blocks fit")
	}
	return 1, nil
}

// parseRange reads FROM:TO. * is -1, -1.
func parseRange(word string) (from, to int64, err error) {
	if word == "*" {
		return -1, -1, nil
	}
	a, b, ok := strings.Cut(word, ":")
	if ok {
		from, err = strconv.ParseInt(a, 10, 64)
		if err == nil {
			to, err = strconv.ParseInt(b, 10, 64)
		}
	}
	if !ok || err != nil || to < from {
		return 0, 0, fmt.Errorf("%q: FROM:TO", word)
	}
	return from, to, nil
}

func parseDuration(word string) (event.Time, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: a time such as 0, 200ms, 1.5s", word)
	}
	return event.Time(d), nil
}

// String writes a spec as a script would.
func (p *packetSpec) String() string {
	var b strings.Builder
	for _, f := range flagLetters {
		if p.flags&f.flag != 0 {
			b.WriteByte(f.letter)
		}
	}
	if p.from < 0 {
		b.WriteString(" *")
	} else {
		fmt.Fprintf(&b, " %d:%d", p.from, p.to)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"ack", p.ack}, {"win", p.window}, {"mss", p.mss}, {"scale", p.scale}} {
		if f.value >= 0 {
			fmt.Fprintf(&b, " %s %d", f.name, f.value)
		}
	}
	if p.sackOK {
		b.WriteString(" sackok")
	}
	for i, block := range p.sack {
		b.WriteString([]string{" sack ", ","}[min(i, 1)])
		fmt.Fprintf(&b, "%d:%d", block[0], block[1])
	}
	if p.ecn >= 0 {
		b.WriteString(" " + ecnNames[p.ecn])
	}
	return b.String()
}

func TestScriptErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"0 dial\n+1ms expect S":                    "f:2: a packet is FLAGS FROM:TO ...",
		"# nothing\n\n0 hum":                       `f:3: "hum" is not something that can happen`,
		"0 expect Q 0:0":                           `f:1: 'Q' is no flag of S F R P . U E W A`,
		"0 expect . 5:1":                           `f:1: "5:1": FROM:TO`,
		"0 expect S 0:0 ack 1":                     "f:1: ack N without the flag",
		"0 expect . 0:0 ack":                       "f:1: ack lacks its value",
		"0 expect . 0:0 colour 3":                  `f:1: "colour" is no field of a packet`,
		"0 expect . 0:0 x0":                        `f:1: "x0": x1 to x10000`,
		"0 inject . 0:0 sack 1:2,3:4,5:6,7:8,9:10": "f:1: at most four SACK blocks fit",
		"-1s dial":                                 `f:1: "-1s": a time such as 0, 200ms, 1.5s`,
		"1s~x dial":                                `f:1: "x": a time such as 0, 200ms, 1.5s`,
		"0":                                        `f:1: "0": a time and what happens then`,
		"config mss":                               `f:1: "mss": KEY=VALUE`,
		"0 state":                                  "f:1: at least one KEY=VALUE",
		"0 inject . *":                             "f:1: what is injected needs FROM:TO",
		"0 expect . * x2":                          "f:1: xN needs FROM:TO",
		"0 close now":                              `f:1: close takes no arguments, not "now"`,
		"0 write":                                  "f:1: write takes a number of bytes",
	} {
		_, err := parseScript("f", strings.NewReader(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestScriptPacketsReadBack(t *testing.T) {
	for _, text := range []string{
		"S 0:0 win 65535 mss 1460 scale 7 sackok", "S.E 0:0 ack 1", ". 1:1001 ack 1 sack 5:6,8:9 ce", "FP. 7:7 ack 2 notect",
		"R 1:1", "SEWA 0:0 ect0", ". * ack 3",
	} {
		p, err := parsePacket(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		if p.String() != text {
			t.Errorf("%q reads back as %q", text, p.String())
		}
	}
}
