package nic

import "testing"

func TestCPUMask(t *testing.T) {
	for list, want := range map[string]string{
		"0": "1", "0-1": "3", "0-3,8": "10f", "1": "2", "31": "80000000", "32": "1,00000000", "0-63": "ffffffff,ffffffff", "0,64": "1,00000000,00000001",
	} {
		if got, err := cpuMask(list); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", list, got, err, want)
		}
	}
	for _, list := range []string{"", "a", "1-", "-1", "3-1", "0,", "0-8192", "99999999999"} {
		if got, err := cpuMask(list); err == nil {
			t.Errorf("%q: got %s, want an error", list, got)
		}
	}
}
