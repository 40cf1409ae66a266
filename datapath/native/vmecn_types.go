package native

// Modes of vmecn.h.
const (
	VMECNNone          = 0
	VMECNAll           = 1
	VMECNNotNegotiated = 2
)
