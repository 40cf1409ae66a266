package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"weir/experiment"
)

// CheckHost tells in one line, before anything is created, why this machine cannot hold a lab of
// this configuration: no root, a topology that is too large or not in this build.
func CheckHost(cfg *experiment.Config) error {
	if os.Geteuid() != 0 {
		return errors.New("the lab needs root to make network namespaces: run it with sudo")
	}
	p, err := newPlan(cfg)
	if err != nil {
		return err
	}
	_, err = newFabric(cfg.Switch, p)
	return err
}

// freeMemoryKB is what /proc/meminfo calls available.
func freeMemoryKB() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb
		}
	}
	return 0
}

var _ = fmt.Sprint
