package flows

import "github.com/cilium/ebpf"

// Run sends a frame through the program of the first port.
func (f *Flows) Run(frame []byte) (verdict uint32, out []byte, err error) {
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	verdict, err = f.ports[0].program.Run(&o)
	return verdict, o.DataOut, err
}

// Known returns how many flows the readings remember, and the most that the table has.
func (f *Flows) Known() (n, table int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known), most
}
