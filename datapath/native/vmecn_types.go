package native

// Modes of vmecn.h.
const (
	VMECNNone          = 0
	VMECNAll           = 1
	VMECNNotNegotiated = 2
)

// How far the ends of a connection agreed on ECN: enum vmecn_agreed.
const (
	VMECNNotAsked = 0
	VMECNAsked    = 1
	VMECNAgreed   = 2
)
