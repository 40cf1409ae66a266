package laws

import (
	acdclaw "weir/law/acdc"
	"weir/law/droptail"
	"weir/law/fairq"
	"weir/law/mark"
	"weir/law/siccns2"
	"weir/law/static"
)

// testWorks are the simulator's laws.
var testWorks = Laws{
	droptail.Name: DropTail(), mark.RED: Mark(), mark.ECN: Mark(), static.Spec().Name: Static(),
	acdclaw.Spec().Name: ACDC(), fairq.Name: FairQ(),
	siccns2.Name: SICCNS2(),
}
