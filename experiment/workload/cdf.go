package workload

import (
	"fmt"
	"math"
	"slices"

	"weir/law"
)

// Distribution is a cumulative distribution of flow sizes, linear between its points.
type Distribution struct {
	Name   string
	Source string // the paper with the measurement
	points []point
}

// point means that a share P of the flows has at most Bytes.
type point struct{ Bytes, P float64 }

// distributions are published in papers of the field.
func distributions() []Distribution {
	return []Distribution{
		{"web_search", "Alizadeh et al., DCTCP, SIGCOMM 2010 (table as used by HPCC and PIAS)", []point{
			{0, 0}, {10000, 0.15}, {20000, 0.2}, {30000, 0.3}, {50000, 0.4}, {80000, 0.53}, {200000, 0.6},
			{1000000, 0.7}, {2000000, 0.8}, {5000000, 0.9}, {10000000, 0.97}, {30000000, 1},
		}},
		{"data_mining", "Greenberg et al., VL2, SIGCOMM 2009", []point{
			{0, 0}, {180, 0.1}, {216, 0.2}, {560, 0.3}, {900, 0.4}, {1100, 0.5}, {1870, 0.6}, {3160, 0.7},
			{10000, 0.8}, {400000, 0.9}, {3160000, 0.95}, {100000000, 0.98}, {1000000000, 1},
		}},
		{"hadoop", "Roy et al., Facebook, SIGCOMM 2015 (table as used by HPCC)", []point{
			{0, 0}, {100, 0.01}, {200, 0.02}, {300, 0.05}, {350, 0.15}, {400, 0.2}, {500, 0.3}, {600, 0.4},
			{700, 0.5}, {1000, 0.6}, {2000, 0.67}, {7000, 0.7}, {30000, 0.72}, {50000, 0.82}, {80000, 0.87},
			{120000, 0.9}, {300000, 0.95}, {1000000, 0.975}, {2000000, 0.99}, {10000000, 1},
		}},
		{"storage", "Alibaba storage 2019 (table as used by HPCC)", []point{
			{0, 0}, {4000, 0.2293}, {8000, 0.6921}, {16000, 0.8061}, {32000, 0.9047}, {64000, 0.9353},
			{128000, 0.9677}, {256000, 0.9753}, {2000000, 1},
		}},
	}
}

// Distributions lists the names that `cdf` may have.
func Distributions() []string {
	var names []string
	for _, d := range distributions() {
		names = append(names, d.Name)
	}
	return names
}

// DistributionOf returns the distribution with this name.
func DistributionOf(name string) (*Distribution, error) {
	all := distributions()
	i := slices.IndexFunc(all, func(d Distribution) bool { return d.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("cdf %q is not known; it is one of %v", name, Distributions())
	}
	return &all[i], nil
}

// Mean returns the mean size in bytes.
func (d *Distribution) Mean() float64 {
	sum := 0.0
	for i := 1; i < len(d.points); i++ {
		a, b := d.points[i-1], d.points[i]
		sum += float64((b.P - a.P) * float64((a.Bytes+b.Bytes)/2))
	}
	return sum
}

// Quantile returns the size that a share u in [0, 1) of the flows does not exceed, at least 1 B.
func (d *Distribution) Quantile(u float64) law.Bytes {
	i := 1
	for i < len(d.points)-1 && u >= d.points[i].P {
		i++
	}
	a, b := d.points[i-1], d.points[i]
	size := a.Bytes + float64((b.Bytes-a.Bytes)*((u-a.P)/(b.P-a.P)))
	return law.Bytes(max(1, math.Round(size)))
}
