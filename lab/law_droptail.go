package lab

import (
	"context"
	"errors"
	"slices"

	"weir/experiment"
	"weir/law"
	"weir/law/droptail"
)

// DropTail is `droptail` in the lab: the buffers themselves drop.
func DropTail() Law {
	return Law{Stays: true, Hardware: dropTailHardware, Start: func(context.Context, *Lab, *experiment.Run, string) (Attached, error) { return Quiet{}, nil }}
}

// dropTailHardware: the block only forwards.
func dropTailHardware(*experiment.Run, string) (Hardware, error) {
	return Hardware{Registers: map[uint32]uint32{regControl: 0}}, nil
}

// DeepTail is `deeptail` in the lab: the switches' queues hold more.
func DeepTail() Law {
	return Law{Stays: true, Start: func(_ context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
		p, err := law.Params[droptail.DeepParams](r.Params, name)
		if err != nil {
			return nil, err
		}
		d := &deepTail{lab: l, more: p.More}
		for _, n := range l.plan.nodes {
			if n.kind != experiment.Switch || !slices.Contains(r.At, n.name) {
				continue
			}
			for _, p := range n.ports {
				if p.rate == 0 || p.buffer == 0 {
					continue
				}
				d.ports = append(d.ports, p)
				p.buffer += d.more
				if err := l.setRate(p, p.rate); err != nil {
					return nil, errors.Join(err, d.Close())
				}
			}
		}
		return d, nil
	}}
}

// deepTail is the ports whose queues hold more.
type deepTail struct {
	Quiet
	lab   *Lab
	more  law.Bytes
	ports []*port
}

// Close gives the queues their own limits.
func (d *deepTail) Close() error {
	var errs []error
	for _, p := range d.ports {
		p.buffer -= d.more
		errs = append(errs, d.lab.setRate(p, p.rate))
	}
	return errors.Join(errs...)
}
