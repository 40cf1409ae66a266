package main

import (
	"reflect"
	"testing"

	"github.com/spf13/cobra"

	"weir/agent/switchd"
)

// The defaults in --help are the real ones: setting a flag to its default changes nothing.
func TestSwitchFlags_ShowTheDefaults(t *testing.T) {
	configOf := func(args ...string) *switchd.Config {
		t.Helper()
		var f switchFlags
		cmd := &cobra.Command{}
		f.add(cmd.Flags())
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		c, err := f.config(cmd, cmd.Flags().Args())
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return c
	}
	silent, shown := configOf("swp1"), 0
	for _, l := range fileFlags() {
		if l.Default == "" {
			continue
		}
		shown++
		if said := configOf("swp1", "--"+l.Name, l.Default); !reflect.DeepEqual(said, silent) {
			t.Errorf("--help shows --%s %s; without it %+v holds, with it %+v", l.Name, l.Default, silent, said)
		}
	}
	if shown < 8 {
		t.Errorf("only %d flags show a default", shown)
	}
	// Another value changes something, so the comparison covers these keys.
	for flag, other := range map[string]string{
		"target-fraction": "0.3", "rtt": "1ms", "interval": "1ms", "updates": "2", "gain": "code", "count": "handshake",
		"shrink": "avoid", "signed": "limit", "scale": "shim", "metrics": "127.0.0.1:1",
	} {
		if reflect.DeepEqual(configOf("swp1", "--"+flag, other), silent) {
			t.Errorf("--%s %s changes nothing", flag, other)
		}
	}
}
