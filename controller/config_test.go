package controller

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFile(t *testing.T) {
	load := func(text string) (*Config, error) {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("c.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load("c.yaml", nil)
	}
	c, err := load("kind: Controller\nname: east\npoll: 10ms\nrates: {copy: 5000}\nlimits: {floods: 7}\ntls: {ca: a, certificate: b, key: c}\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Poll != 10*time.Millisecond || c.Forward.Rates.Copy != 5000 || c.Forward.Rates.ARP != 500 || c.Forward.FloodBurst != 14 ||
		c.Generation != filepath.Join(generationDir, "controller-east.generation") || c.TLS.Certificate != "b" || c.Listen != defaultListen {
		t.Errorf("%+v", c)
	}
	for text, says := range map[string]string{
		"kind: Controller\npoll: 10us\n":                       "c.yaml:2: poll: 10µs is out of range; 1ms to 1h, or 0s for never",
		"kind: Controller\nlisten: nowhere\n":                  `c.yaml:2: listen: "nowhere" is not an address with a port; such as 127.0.0.1:6653`,
		"kind: Controller\nrates: {syn: 5}\n":                  "c.yaml:2: rates.syn: unknown key; allowed: arp, copy, miss, probe, source",
		"kind: Controller\ntls: {ca: a, certificate: b}\n":     "c.yaml:2: tls.key: the key is missing; it must be given: PEM file: key of the controller",
		"kind: Controller\nlimits: {hosts: 0}\n":               `c.yaml:2: limits.hosts: "0" is out of range; at least 1 and at most 65536`,
		"kind: Switch\nports: [{match: x}]\n":                  "c.yaml: this is a Switch file: use weir switch -f c.yaml",
		"kind: Controller\nmetrics: {listen: \"host.name:1\"}": `c.yaml:2: metrics.listen: metrics on "host.name:1": an address of this machine and a port, as in 127.0.0.1:9187, or nothing for none`,
	} {
		if _, err := load(text); err == nil || err.Error() != says {
			t.Errorf("%q:\n%v\nwanted\n%s", text, err, says)
		}
	}
}
