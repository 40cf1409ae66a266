package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"weir/law"
)

func TestParse_Reads(t *testing.T) {
	p := read(t, 3, `name: gold
select:
  ports: {names: [tor1/swp1, "tor2/*"]}
  vms: {labels: {tenant: a, tier: [front, cache]}}
laws: {window: {share: 0.25}, marker: {}}
enforce: {percent: 10}
`)
	if p.Percent != 10 || len(p.Laws) != 2 || p.Laws[0].Law != "marker" || p.Laws[1].Given != "share=0.25" || p.Laws[0].Given != "" {
		t.Errorf("%+v", p)
	}
	if got, want := string(p.Laws[1].Params), `{"every":"1ms","share":0.25}`; got != want {
		t.Errorf("parameters %s, want %s", got, want)
	}
	for name, want := range map[string]bool{"tor1/swp1": true, "tor2/swp9": true, "tor1/swp2": false} {
		if got := p.Select[Port].Matches(name, nil); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for tier, want := range map[string]bool{"front": true, "cache": true, "db": false, "": false} {
		if got := p.Select[VM].Matches("x", map[string]string{"tenant": "a", "tier": tier}); got != want {
			t.Errorf("tier %q: %v, want %v", tier, got, want)
		}
	}
	g := read(t, 0, "name: g\nselect: {vms: {names: ['*']}}\nguarantee: {rate: 1Gbit, cap: 2Gbit, excess: drop}\n")
	if g.Guarantee != (Guarantee{1e9, 1, 2e9, law.ExcessDrop}) || g.Percent != 100 || g.Guarantee.String() != "rate 1Gbit, weight 1, cap 2Gbit, excess drop" {
		t.Errorf("%+v", g)
	}
}

// Each fault of a file is refused with its line and key, and with what is allowed.
func TestParse_Refuses(t *testing.T) {
	vms := "select: {vms: {names: [web1]}}\n"
	long := strings.Repeat("x", 64)
	for _, row := range []struct{ text, says string }{
		{"name: Gold\n" + vms + "laws: {window: {}}\n", `p.yaml:3: name: "Gold" is not in the form asked for; 1 to 63 of a-z, 0-9 and -`},
		{"name: " + long + "\n" + vms + "laws: {window: {}}\n", "p.yaml:3: name: "},
		{"name: a\nlaws: {window: {}}\n", "p.yaml:1: select: the key is missing"},
		{"name: a\nselect: {}\nlaws: {window: {}}\n", "p.yaml:4: select: nothing is selected; one or more of ports, hosts, vms"},
		{"name: a\nselect: {vms: {}}\nlaws: {window: {}}\n", "p.yaml:4: select.vms: nothing is selected; names, labels, or both"},
		{"name: a\nselect: {vm: {names: [a]}}\nlaws: {window: {}}\n", "p.yaml:4: select.vm: unknown key; did you mean vms?"},
		{"name: a\nselect: {vms: {names: [a b]}}\nlaws: {window: {}}\n", `p.yaml:4: select.vms.names.0: "a b" is not a name`},
		{"name: a\nselect: {vms: {names: [a*b]}}\nlaws: {window: {}}\n", `p.yaml:4: select.vms.names.0: "a*b" is not a name`},
		{"name: a\nselect: {ports: {names: [swp1]}}\nlaws: {window: {}}\n", `p.yaml:4: select.ports.names.0: "swp1" is not a port; SWITCH/PORT`},
		{"name: a\nselect: {vms: {labels: {\"te\\tnant\": a}}}\nlaws: {window: {}}\n", "p.yaml:4: select.vms.labels.te nant: \"te nant\" is not a label"},
		{"name: a\nselect: {vms: {labels: {t: [a, b c, \"d\\te\"]}}}\nlaws: {window: {}}\n", `p.yaml:4: select.vms.labels.t: "d e" is not a value of a label`},
		{"name: a\nselect: {vms: {labels: {t: []}}}\nlaws: {window: {}}\n", `p.yaml:4: select.vms.labels.t: 0 values are given; a list of 1 to 64`},
		{"name: a\nselect: {vms: {labels: {t: 1}}}\nlaws: {window: {}}\n", `p.yaml:4: select.vms.labels.t: "1" is not `},
		{"name: a\n" + vms, "p.yaml:1: the policy has no laws and no guarantee"},
		{"name: a\n" + vms + "laws: {windw: {}}\n", `p.yaml:5: laws.windw: "windw" is not a law; did you mean window?`},
		{"name: a\n" + vms + "laws: {marker: {}}\n", "p.yaml:5: laws.marker: the law marker runs at: switch port; the policy selects none of them"},
		{"name: a\n" + vms + "laws:\n  window:\n    shar: 1\n", "p.yaml:7: laws.window.shar: unknown key; did you mean share?"},
		{"name: a\n" + vms + "laws: {window: {share: 2}}\n", `p.yaml:5: laws.window.share: "2" is out of range; at least 0 and at most 1`},
		{"name: a\n" + vms + "laws: {window: {every: 0s}}\n", "p.yaml:5: laws.window.every: 0 is not allowed; above 0"},
		{"name: a\n" + vms + "laws: {window: {old: 1}}\n", "p.yaml:5: laws.window.old: the key has no effect: nothing reads it; remove it"},
		{"name: a\nselect: {ports: {names: ['*']}}\nlaws: {marker: {}, painter: {}}\n", "p.yaml:5: laws: laws marker and painter cannot run at one place: both claim marking"},
		{"name: a\nselect: {ports: {names: ['*']}, hosts: {names: ['*']}}\nlaws: {marker: {}}\n", "p.yaml:4: select.hosts: no law of the policy runs there"},
		{"name: a\nselect: {hosts: {names: ['*']}}\nguarantee: {rate: 1Gbit}\n", "p.yaml:5: guarantee: no VMs are selected"},
		{"name: a\n" + vms + "guarantee: {rate: 2Gbit, cap: 1Gbit}\n", "p.yaml:5: guarantee.cap: 1Gbit is below the guaranteed rate of 2Gbit"},
		{"name: a\n" + vms + "guarantee: {rate: 0kbit}\n", "p.yaml:5: guarantee.rate: 0 is not a rate"},
		{"name: a\n" + vms + "guarantee: {cap: 0kbit}\n", "p.yaml:5: guarantee.cap: 0 is not a rate"},
		{"name: a\n" + vms + "guarantee: {weight: 1001}\n", `p.yaml:5: guarantee.weight: "1001" is out of range`},
		{"name: a\n" + vms + "guarantee: {rate: 1}\n", "p.yaml:5: guarantee.rate: "},
		{"name: a\n" + vms + "guarantee: {rate: 1Gbit}\nenforce: {percent: 10}\n", "p.yaml:6: enforce.percent: a guarantee is for a VM, not for a part of its flows"},
		{"name: a\n" + vms + "laws: {window: {}}\nenforce: {percent: 101}\n", `p.yaml:6: enforce.percent: "101" is out of range`},
		{"name: a\n" + vms + "laws: {" + many(9, "window%d: {}") + "}\n", "p.yaml:5: laws: 9 laws; at most 8"},
		{"name: a\nselect: {vms: {names: [" + many(1001, "n%d") + "]}}\nlaws: {window: {}}\n", "p.yaml:4: select.vms.names: 1001 values are given"},
		{"name: a\nselect: {vms: {labels: {" + many(33, "l%d: x") + "}}}\nlaws: {window: {}}\n", "p.yaml:4: select.vms.labels: "},
		{"name: a\nselect: {vms: {labels: {t: [" + many(65, "v%d") + "]}}}\nlaws: {window: {}}\n", "p.yaml:4: select.vms.labels.t: 65 values are given; a list of 1 to 64"},
	} {
		_, err := NewReader(toys()).Parse("p.yaml", []byte(head+row.text))
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+row.says) {
			t.Errorf("%.200s\ngot:  %v\nwant: %s", row.text, err, row.says)
		}
	}
	for text, want := range map[string]string{
		"kind: Switch\nversion: 1\n": "this is a Switch file: use weir switch -f p.yaml",
		"kind: Policy\n":             "p.yaml:1: version: the key is missing",
		"kind: Policy\nversion: 2\n": `p.yaml:2: version: "2" is not known; allowed: 1`,
	} {
		if _, err := NewReader(toys()).Parse("p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func many(n int, format string) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(out, ", ")
}

// A policy of 100 MB is refused after its first bytes: it is never in memory.
func TestLoad_RefusesALargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(head + "name: a\n#")
	if err == nil {
		err = f.Truncate(100 << 20)
	}
	if closed := f.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	r := NewReader(toys())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = r.Load(path)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("%v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
		t.Errorf("it took %d bytes of memory", used)
	}
}
