package compare

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
	"gonum.org/v1/gonum/stat"

	"weir/experiment/result"
)

// Flows are the completion times of single flows in ms, sorted, of each run by group.
type Flows []map[string][]float64

// maxFlows limits the completion times in memory, 8 B each.
const maxFlows = 50_000_000

// quantiles are the quantiles shown for a distribution.
var quantiles = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999}

// Distribution compares the completion times of a group of flows, over all seeds that are compared.
type Distribution struct {
	Group string `json:"group"`
	A     Shape  `json:"a"`
	B     Shape  `json:"b"`
	// KS is the Kolmogorov-Smirnov distance: the largest vertical distance of the two cumulative distributions, 0
	// to 1. No test is made with it: the flows of a run share queues and are not independent. BetweenA and
	// BetweenB are the largest distance between one seed and the next of the same side: the effect of chance.
	KS       float64  `json:"ks"`
	BetweenA *float64 `json:"ks_between_seeds_a,omitempty"`
	BetweenB *float64 `json:"ks_between_seeds_b,omitempty"`
}

// Shape summarises a distribution, in ms.
type Shape struct {
	N         int       `json:"n"`
	P         []float64 `json:"p"`
	Quantiles []float64 `json:"quantiles_ms"` // at P
	Max       float64   `json:"max_ms"`
}

// ReadFlows reads the completion times of a document's runs from the flows.parquet that was written with it. A
// file of other runs is an error.
func ReadFlows(path string, doc *result.Document) (Flows, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("read flows: %s is not a Parquet file: %w", path, err)
	}
	out := make(Flows, len(doc.Runs))
	for i := range out {
		out[i] = map[string][]float64{}
	}
	if err := out.read(file, doc); err != nil {
		return nil, fmt.Errorf("read flows: %s: %w", path, err)
	}
	for _, groups := range out {
		for _, times := range groups {
			slices.Sort(times)
		}
	}
	return out, nil
}

// flowTime has the columns of a flow's row that are needed here.
type flowTime struct {
	Run    int32    `parquet:"run"`
	World  string   `parquet:"world"`
	Seed   int64    `parquet:"seed"`
	Scheme string   `parquet:"scheme"`
	Axes   string   `parquet:"axes"`
	Group  string   `parquet:"group"`
	FCT    *float64 `parquet:"fct,optional"`
}

func (fl Flows) read(file *parquet.File, doc *result.Document) error {
	for _, column := range parquet.SchemaOf(flowTime{}).Columns() {
		if _, ok := file.Schema().Lookup(column...); !ok {
			return fmt.Errorf("it has no column %s", column[0])
		}
	}
	if file.NumRows() > maxFlows {
		return fmt.Errorf("it has %d flows; at most %d are compared", file.NumRows(), maxFlows)
	}
	in := parquet.NewGenericReader[flowTime](file)
	defer in.Close()
	axes := make([]string, len(doc.Runs))
	for i, r := range doc.Runs {
		axes[i] = result.AxesText(r.Axes)
	}
	rows := make([]flowTime, 4096)
	for {
		clear(rows) // a null would leave the old value
		n, err := in.Read(rows)
		for i := range rows[:n] {
			row := &rows[i]
			if row.Run < 0 || int(row.Run) >= len(doc.Runs) {
				return fmt.Errorf("it has flows of run %d, but the results have %d runs", row.Run, len(doc.Runs))
			}
			if r := doc.Runs[row.Run]; row.World != r.World || row.Seed != r.Seed || row.Scheme != r.Scheme || row.Axes != axes[row.Run] {
				return fmt.Errorf("it belongs to other results: its run %d is %s in %s with seed %d", row.Run, row.Scheme, row.World, row.Seed)
			}
			if row.FCT != nil {
				fl[row.Run][row.Group] = append(fl[row.Run][row.Group], *row.FCT)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// distributions compares the groups that have completion times in both cells, over the same seeds as the metrics.
func distributions(a, b *cell, flowsA, flowsB Flows) []Distribution {
	out := []Distribution{}
	if flowsA == nil || flowsB == nil {
		return out
	}
	for _, path := range result.MainMetrics(a.runs, nil) {
		if len(path) != 3 || path[1] != "fct_ms" || path[2] != "mean" {
			continue
		}
		group := path[0]
		x, y := a.times(group, flowsA), b.times(group, flowsB)
		seedsA, seedsB, _ := chosen(a.values(path), b.values(path))
		x, y = only(x, seedsA), only(y, seedsB)
		if len(x) == 0 || len(y) == 0 {
			continue
		}
		poolA, poolB := pool(x), pool(y)
		out = append(out, Distribution{
			Group: group, A: shape(poolA), B: shape(poolB), KS: stat.KolmogorovSmirnov(poolA, nil, poolB, nil),
			BetweenA: between(x), BetweenB: between(y),
		})
	}
	return out
}

// seedTimes are the completion times of a group with one seed.
type seedTimes struct {
	seed  int64
	times []float64
}

// times returns the completion times of a group for each seed that has some, in ascending order of seeds.
func (c *cell) times(group string, flows Flows) []seedTimes {
	var out []seedTimes
	for i, r := range c.runs {
		if t := flows[c.index[i]][group]; len(t) > 0 {
			out = append(out, seedTimes{r.Seed, t})
		}
	}
	slices.SortFunc(out, func(a, b seedTimes) int { return int(min(max(a.seed-b.seed, -1), 1)) })
	return out
}

func only(list []seedTimes, seeds []int64) []seedTimes {
	return slices.DeleteFunc(list, func(s seedTimes) bool { return !slices.Contains(seeds, s.seed) })
}

func pool(list []seedTimes) []float64 {
	var out []float64
	for _, s := range list {
		out = append(out, s.times...)
	}
	slices.Sort(out)
	return out
}

// between returns the largest distance of a seed to the next; nil for a single seed.
func between(list []seedTimes) *float64 {
	if len(list) < 2 {
		return nil
	}
	most := 0.0
	for i := range list[1:] {
		most = max(most, stat.KolmogorovSmirnov(list[i].times, nil, list[i+1].times, nil))
	}
	return &most
}

func shape(sorted []float64) Shape {
	out := Shape{N: len(sorted), P: quantiles, Max: sorted[len(sorted)-1]}
	for _, p := range quantiles {
		out.Quantiles = append(out.Quantiles, result.Quantile(sorted, p))
	}
	return out
}
