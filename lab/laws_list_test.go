package lab_test

import (
	"weir/cmd/weir/laws"
	"weir/lab"
)

var _ = lab.UseLaws(laws.All(), laws.Lab())
