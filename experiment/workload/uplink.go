package workload

import (
	"fmt"

	"weir/experiment"
	"weir/law"
)

// link is a shaped link by which sources reach the network.
type link struct {
	name  string // its two ends
	rate  law.Rate
	pairs []int // of the item, whose sources are behind it
}

// gapNs is the mean time between arrivals, in ns, at which flows of a mean size (in bytes) load
// the link.
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
		if i == 0 || pair.Src != p.Pairs[i-1].Src { // a source has all its pairs in a row
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

// uplink finds the shaped link between a guest and the network: its own, or that of the
// hypervisor it hangs on by a link without a rate.
func (e *expander) uplink(node string) (link, error) {
	if e.cfg.Graph == nil {
		return link{}, fmt.Errorf("the rate of %s's link is needed, and there is no network", node)
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
	return link{}, fmt.Errorf("the link of %s has no rate: give network.rate, or the item a rate", node)
}
