package datapath

// Check says what of the law the switch program cannot do.
func (l *FairQLaw) Check() error { return l.check() }
