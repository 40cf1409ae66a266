package traffic

import (
	"fmt"
	"net/netip"
	"os"

	"weir/experiment"
	"weir/experiment/workload"
)

// maxBatch limits the sockets that are opened in advance for one address.
const maxBatch = 128

// sysctls returns the settings that thousands of connections need, in every node that connects or accepts:
//
//   - room for all connections of a burst that wait for accept;
//   - 55,000 client ports for each server address, and a port in TIME_WAIT may be used again
//     after 1 s (the timestamps separate the connections). The receiving side closes
//     first and so has the TIME_WAIT: a pair can then open 126,000 connections in a minute.
func sysctls() [][2]string {
	return [][2]string{
		{"core/somaxconn", "65535"},
		{"ipv4/tcp_max_syn_backlog", "65535"},
		{"ipv4/ip_local_port_range", "10240 65535"},
		{"ipv4/tcp_tw_reuse", "1"},
	}
}

// prepare opens listeners and sockets wherever the traffic needs them.
func (r *runner) prepare() error {
	tuned := map[string]bool{}
	wanted := map[place]int{} // connections of an address that may be opened at once
	for i := range r.cfg.Items {
		it := &r.cfg.Items[i]
		units := max(it.Count, it.Concurrency, 1)
		for _, pair := range it.Pairs {
			for _, node := range []string{pair.Src, pair.Dst} {
				if !tuned[node] {
					tuned[node] = true
					r.tune(node)
				}
			}
			if workload.UDP(&it.Traffic) {
				continue
			}
			client, server := workload.Ends(&it.Traffic, pair)
			if err := r.open(place{server, it.Profile}); err != nil {
				return err
			}
			if err := r.openDialer(place{client, it.Profile}); err != nil {
				return err
			}
			wanted[place{client, it.Profile}] += units
		}
	}
	for _, p := range r.order {
		d := r.dialers[p]
		if d == nil {
			continue
		}
		if err := d.prepare(min(max(wanted[p], 2), maxBatch)); err != nil {
			return err
		}
	}
	return r.prepareUDP()
}

func (r *runner) tune(node string) {
	err := r.net.Enter(node, func() error {
		for _, s := range sysctls() {
			if err := os.WriteFile("/proc/sys/net/"+s[0], []byte(s[1]), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.note(fmt.Sprintf("traffic settings of a node: %v", err))
	}
}

// open makes sure that a place has a listener.
func (r *runner) open(p place) error {
	if r.listeners[p] != nil {
		return nil
	}
	addr, err := addressOf(r.net, p)
	if err != nil {
		return err
	}
	a, err := newAcceptor(r.net, p, netip.AddrPortFrom(addr, Port))
	if err != nil {
		return err
	}
	l := newListener(a, r.clock)
	r.listeners[p] = l
	r.order = append(r.order, p)
	r.spawn(func() { l.serve(r) })
	return nil
}

// openDialer makes sure that a place has a dialer.
func (r *runner) openDialer(p place) error {
	if r.dialers[p] != nil {
		return nil
	}
	addr, err := addressOf(r.net, p)
	if err != nil {
		return err
	}
	r.dialers[p] = newOpener(r.net, p, addr)
	r.order = append(r.order, p)
	return nil
}

// route returns the route of a pair's connections.
func (r *runner) route(it *experiment.Item, pair int) *route {
	client, server := workload.Ends(&it.Traffic, it.Pairs[pair])
	from := place{client, it.Profile}
	return &route{
		client:   from,
		dialer:   r.dialers[from],
		listener: r.listeners[place{server, it.Profile}],
		pull:     workload.Pulls(&it.Traffic), persistent: workload.Persistent(&it.Traffic),
	}
}
