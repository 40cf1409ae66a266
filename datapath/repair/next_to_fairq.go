package repair

// FairQ's program at a port. It, too, decides about each packet first, so a port has one of the two.
const (
	otherProgram = "weir_fairq"
	otherTable   = "controls" // pinned by it alone
	otherName    = "FairQ"
)
