package lab

import "testing"

func TestParseProcessors(t *testing.T) {
	got, err := parseProcessors("cpu  10 1 20 60 5 1 2 1 7 3\ncpu0 1 1 1 1\n")
	if err != nil || got != (ProcessorTimes{idle: 65, total: 100}) {
		t.Errorf("%+v, %v; want 65 of 100 idle: time of guests counts once", got, err)
	}
	if old, err := parseProcessors("cpu 1 2 3 4\n"); err != nil || old != (ProcessorTimes{idle: 4, total: 10}) {
		t.Errorf("%+v, %v; an old kernel gives four figures", old, err)
	}
	for _, text := range []string{"", "intr 1 2 3 4 5", "cpu 1 2 3", "cpu a b c d e"} {
		if _, err := parseProcessors(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
