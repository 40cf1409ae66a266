package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

// release returns the running kernel's version, major and minor.
func release(t *testing.T) (major, minor int) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major, minor
}

// A probe must find its feature on a kernel that is new enough. Otherwise the probe is wrong, and every test
// that depends on it would always be skipped.
func TestProbes_FindWhatTheKernelHas(t *testing.T) {
	testroot.Need(t, "asks the kernel about BPF")
	major, minor := release(t)
	for _, p := range append(append(QueueProbes(), MeasureProbes()...), SocketProbes()...) {
		t.Run(p.Feature, func(t *testing.T) {
			var sinceMajor, sinceMinor int
			if n, _ := fmt.Sscanf(p.Since, "%d.%d", &sinceMajor, &sinceMinor); n != 2 {
				sinceMajor, sinceMinor = 0, 0 // an option of the kernel, which this one has
			}
			err := p.Check()
			old := major < sinceMajor || major == sinceMajor && minor < sinceMinor
			var missing *MissingFeature
			if !old && err != nil {
				t.Errorf("Linux %d.%d: %v", major, minor, err)
			}
			if old && !errors.As(err, &missing) {
				t.Errorf("Linux %d.%d is older than %s and the probe says %v", major, minor, p.Since, err)
			}
		})
	}
}

// A probe for a feature that no kernel has fails, with the feature's name and version in the error.
func TestProbes_FindWhatTheKernelLacks(t *testing.T) {
	testroot.Need(t, "asks the kernel about BPF")
	p := Probe{"kfunc weir_no_such_function", "9.9", KernelHas[*btf.Func]("weir_no_such_function")}
	err := CheckAll([]Probe{p})
	var missing *MissingFeature
	if !errors.As(err, &missing) || missing.Since != "9.9" {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{"weir_no_such_function", "Linux 9.9 or later"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	option := (&MissingFeature{"type information of its own (BTF)", "CONFIG_DEBUG_INFO_BTF"}).Error()
	if !strings.HasSuffix(option, "it needs CONFIG_DEBUG_INFO_BTF") {
		t.Errorf("error %q", option)
	}
}
