package doctor

import (
	"weir/agent/switchd"
	"weir/agent/switchd/fairq"
)

// agent is `weir switch` with a law, for the tests.
func agent() *switchd.Agent { return switchd.New(fairq.Law{}) }
