package lab

import (
	"weir/experiment"
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

// testLaws are laws to read files with, and testWorks what the lab has of them.
var (
	testLaws = experiment.NewLaws(
		experiment.Law{Spec: droptail.Spec(), Built: experiment.BuiltWorlds()},
		experiment.Law{Spec: mark.REDSpec(), Built: experiment.BuiltWorlds()},
		experiment.Law{Spec: mark.ECNSpec(), Built: experiment.BuiltWorlds()},
		experiment.Law{Spec: fairq.Spec(), Built: experiment.BuiltWorlds()},
		experiment.Law{Spec: static.Spec()}, experiment.Law{Spec: acdc.Spec()}, experiment.Law{Spec: sicc.Spec()}, experiment.Law{Spec: gcc.Spec()},
		experiment.Law{Spec: hygenicc.Spec()}, experiment.Law{Spec: sed.Spec()}, experiment.Law{Spec: sed.RepairSpec()},
	)
	testWorks = Laws{droptail.Name: DropTail(), mark.RED: Mark(), mark.ECN: Mark(), fairq.Name: FairQ()}
)
