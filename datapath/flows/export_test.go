package flows

import "github.com/cilium/ebpf"

// Run sends a frame through the program of the first port.
func (f *Flows) Run(frame []byte) (verdict uint32, out []byte, err error) {
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	verdict, err = f.ports[0].program.Run(&o)
	return verdict, o.DataOut, err
}
