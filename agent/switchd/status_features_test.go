package switchd

import (
	"testing"

	"github.com/safchain/ethtool"
)

// What is read by bits is what ethtool's library reads by names, also after a change.
func TestFeatureReader(t *testing.T) {
	n, _ := device(t)
	names := []string{featureFraglist, featureHardware, "tx-checksum-ip-generic", "no-such-feature"}
	n.Must(t, func() error {
		r, err := newFeatureReader()
		if err != nil {
			return err
		}
		defer r.close()
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		for _, fraglist := range []bool{true, false} {
			if err := tool.Change("p0", map[string]bool{featureFraglist: fraglist}); err != nil {
				return err
			}
			all, err := tool.Features("p0")
			if err != nil {
				return err
			}
			got := r.read("p0", names...)
			for _, name := range names {
				if got[name] != all[name] {
					t.Errorf("%s: %t, want %t", name, got[name], all[name])
				}
			}
			if got[featureFraglist] != fraglist || len(got) != 3 {
				t.Errorf("%s was set to %t: %v", featureFraglist, fraglist, got)
			}
		}
		if got := r.read("no-such-device", names...); len(got) > 0 {
			t.Errorf("of no device: %v", got)
		}
		return nil
	})
}
