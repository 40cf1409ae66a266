package experiment_test

import (
	"weir/cmd/weir/laws"
	"weir/experiment"
)

var _ = experiment.UseLaws(laws.All())
