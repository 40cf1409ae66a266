package experiment

import (
	"weir/law/acdc"
	"weir/law/droptail"
	"weir/law/fairq"
	"weir/law/gcc"
	"weir/law/hygenicc"
	"weir/law/mark"
	"weir/law/sed"
	"weir/law/sicc"
	"weir/law/static"
)

// testLaws are laws to read files with. Where they are built decides what Plan skips.
var testLaws = NewLaws(
	Law{Spec: droptail.Spec(), Built: BuiltWorlds()},
	Law{Spec: mark.REDSpec(), Built: BuiltWorlds()},
	Law{Spec: mark.ECNSpec(), Built: BuiltWorlds()},
	Law{Spec: static.Spec(), Built: []string{WorldSim}},
	Law{Spec: acdc.Spec(), Built: []string{WorldSim}},
	Law{Spec: fairq.Spec(), Built: BuiltWorlds()},
	Law{Spec: sicc.Spec()},
	Law{Spec: gcc.Spec()},
	Law{Spec: hygenicc.Spec()},
	Law{Spec: sed.Spec()},
	Law{Spec: sed.RepairSpec()},
)
