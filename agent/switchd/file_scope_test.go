package switchd

import (
	"strings"
	"testing"
)

// A law that acts on all packets of a port has no scope: the key is refused, not ignored.
func TestLoad_ScopeOfWholePorts(t *testing.T) {
	const scope = "scope: [10.0.0.0/8]\nports: [{match: p0}]\n"
	for text, says := range map[string]string{
		scope:                                    "",
		"lossrepair: {}\n" + scope:               "scope: lossrepair acts on all packets of a port",
		"lossrepair: {}\nports: [{match: p0}]\n": "",
	} {
		_, err := New(TestLaw, TestOther).Parse("f", []byte("kind: Switch\nversion: 2\n"+text))
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
