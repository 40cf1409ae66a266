package datapath

// For tests of package datapath_test, which build networks and so cannot be of this package.

// StopTimer stops a port's timer, as if it had died.
func (f *FairQ) StopTimer(port string) error { return f.disarm(f.ports[f.index(port)].id) }
