package gcc

import (
	"weir/law"
	"weir/law/limiter"
)

// Host is the shim of Algorithm 1 at a hypervisor: the rate of each VM. Make one with NewHost.
type Host struct {
	*limiter.Shim[steps]
	p Config
}

// guest is a VM.
type guest = limiter.Guest[steps]

// NewHost returns the half at a host. The error says which parameter is wrong.
func NewHost(p Config) (*Host, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	p = p.late()
	h := &Host{p: p}
	h.Shim = limiter.NewShim[steps](p.Params, p.Interval, p.Variant != OVS, h)
	return h, nil
}

var _ law.Law = (*Host)(nil)
