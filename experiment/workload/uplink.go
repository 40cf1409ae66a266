package workload

import (
	"fmt"

	"weir/experiment"
	"weir/law"
)

// link is a shaped link through which sources reach the network.
type link struct {
	name  string // its two ends
	rate  law.Rate
	pairs []int // of the item, whose sources are behind it
}

// gapNs returns the mean time between arrivals, in ns, at which flows with this mean size (in bytes) load the
// link.
func (l *link) gapNs(load, meanBytes float64) float64 {
	return float64(meanBytes*8e9) / float64(load*float64(l.rate))
}

// sources groups an item's pairs by the link that their sources are behind, in order of first
// appearance.
func (e *expander) sources(p *plan) ([]*link, error) {
	var links []*link
	byName := map[string]*link{}
	var l *link
	for i, pair := range p.Pairs {
		if i == 0 || pair.Src != p.Pairs[i-1].Src { // the pairs of a source follow one another
			found, err := e.uplink(pair.Src)
			if err != nil {
				return nil, err
			}
			if l = byName[found.name]; l == nil {
				l = &found
				byName[l.name] = l
				links = append(links, l)
			}
		}
		l.pairs = append(l.pairs, i)
	}
	return links, nil
}

// uplink finds the shaped link between a guest and the network: its own, or that of the hypervisor that it is
// connected to by a link without a rate.
func (e *expander) uplink(node string) (link, error) {
	if e.cfg.Graph == nil {
		return link{}, fmt.Errorf("the rate of %s's link is needed, but there is no network", node)
	}
	if e.links == nil {
		e.links = make(map[string][]*experiment.Link, len(e.cfg.Graph.Nodes))
		for i := range e.cfg.Graph.Links {
			l := &e.cfg.Graph.Links[i]
			e.links[l.A], e.links[l.B] = append(e.links[l.A], l), append(e.links[l.B], l)
		}
	}
	from := node
	for range 2 {
		next := ""
		for _, l := range e.links[from] {
			if l.Rate > 0 {
				return link{name: l.A + "-" + l.B, rate: l.Rate}, nil
			}
			next = l.A
			if l.A == from {
				next = l.B
			}
		}
		from = next
	}
	return link{}, fmt.Errorf("the link of %s has no rate: set network.rate, or the item's rate", node)
}
