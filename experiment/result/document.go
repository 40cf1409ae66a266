package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"weir/law"
)

// Document is the result of one call of weir, and the JSON that it prints and stores. Times are milliseconds and
// rates Mbit/s (10^6 bit/s), both in the experiment's own time and rate (see Run.Scale); sizes are bytes. A metric
// that does not apply or could not be measured is absent, never 0; a 0 was measured.
type Document struct {
	Experiment string          `json:"experiment"`
	Weir       string          `json:"weir"` // version that made it
	Host       Host            `json:"host"`
	File       json.RawMessage `json:"file,omitempty"` // the experiment file as it was run
	Set        []string        `json:"set,omitempty"`  // KEY=VALUE: changes of the file for these runs
	Skipped    []Skip          `json:"skipped"`
	Runs       []*Run          `json:"runs"`
	Claims     []Claim         `json:"claims"`

	// Laws are the laws of the build: how their metrics are shown, and which are baselines. They are not part of
	// the JSON; the reader of a document sets them.
	Laws law.Specs `json:"-"`
}

// Versions returns the versions of weir that made the runs, in the order of the runs. A run that does not say who
// made it was made by the version of the document.
func (d *Document) Versions() []string {
	var out []string
	for _, r := range d.Runs {
		version := d.Weir
		if r.By != nil {
			version = r.By.Weir
		}
		if !slices.Contains(out, version) {
			out = append(out, version)
		}
	}
	return out
}

// Host is the machine that ran the experiment.
type Host struct {
	Kernel string `json:"kernel"` // release, as uname -r
	CPUs   int    `json:"cpus"`
}

// Skip is a scheme that was asked for but cannot run in a world.
type Skip struct {
	Scheme string `json:"scheme"`
	World  string `json:"world"`
	Reason string `json:"reason"`
}

// Run is one run: one world, one scheme, one seed, one point on every axis.
type Run struct {
	World   string            `json:"world"`
	Seed    int64             `json:"seed"`
	Scale   float64           `json:"scale"` // the world ran Scale times slower, at 1/Scale of the rates
	Scheme  string            `json:"scheme"`
	Laws    []string          `json:"laws"`
	GuestCC string            `json:"guest_cc,omitempty"`
	Switch  string            `json:"switch,omitempty"` // kind of the lab's switches; absent: Linux bridges, or routers
	Params  map[string]any    `json:"params"`           // the laws' configuration, and the value of each axis by its name
	Axes    map[string]string `json:"axes,omitempty"`   // the axes alone, for [axis=value] in claims
	Partial bool              `json:"partial"`          // cut short
	Unmet   []Unmet           `json:"unmet"`            // settings and requests that were not fulfilled
	// RTTus is the measured round trip of the idle network, in µs. It is the only time that is not converted to
	// the experiment's own scale.
	RTTus *float64 `json:"rtt_us,omitempty"`
	// Busy is a distribution over seconds of the machine's clock: the share of all its processors that was not
	// idle.
	Busy *Distribution `json:"busy,omitempty"`
	By   *Maker        `json:"by,omitempty"`
	// PayloadShare is the largest possible throughput_mbps of a full link, as a share of the link's rate, with the
	// guests' TCP: see PayloadShareLab and PayloadShareSim.
	PayloadShare float64                `json:"payload_share"`
	Groups       map[string]*Group      `json:"groups"`
	Ports        map[string]*PortResult `json:"ports"`
	Windows      map[string]Window      `json:"windows,omitempty"`

	// Figures has, in a summary of many runs, all metrics that are kept, by their paths. It has no Groups, Ports and Windows
	// then.
	Figures map[string]float64 `json:"figures,omitempty"`

	// Behind has, in a summary, the values of some distributions, by their paths.
	Behind map[string][]float64 `json:"values,omitempty"`

	// Detail is the input of figures and Parquet rows. It is not part of the JSON.
	Detail *Detail `json:"-"`
}

// Maker describes the build, kernel and time of a run: a document may have runs of several days.
type Maker struct {
	Weir   string    `json:"weir"`
	Kernel string    `json:"kernel"`
	Ended  time.Time `json:"ended"`
	TookS  float64   `json:"took_s"` // seconds, including building and removing the network
}

// Window is the part of a run between two instants [from, to). Counts of flows, fct_ms, by_mouse, deadlines,
// timeouts and out_of_order cover the flows that start in it. Bytes, throughput, goodput, jain, series, drops, marks, utilisation
// and queue cover the events in it. A bin of bytes or a sample that lies partly in the window counts in
// proportion.
type Window struct {
	Groups map[string]*Group      `json:"groups"`
	Ports  map[string]*PortResult `json:"ports"`
}

// Group has the metrics of the flows of one group.
type Group struct {
	Flows      int `json:"flows"`      // started
	Unfinished int `json:"unfinished"` // of these: given up, cut off, failed
	// NeverConnected counts the Flows whose connection never opened. Absent for UDP, and if not known for every
	// flow.
	NeverConnected *int `json:"never_connected,omitempty"`
	// Live is the number of flows in progress, over time.
	Live  *Level `json:"live,omitempty"`
	Bytes int64  `json:"bytes"` // payload at the receiving programs
	// Drops are the group's packets, in both directions, dropped at any port. Absent when records of drops were
	// lost.
	Drops *int64 `json:"drops,omitempty"`
	// Timeouts are RTO events of the group's TCP flows. Absent if not known for every flow.
	Timeouts         *int64 `json:"timeouts,omitempty"`
	FlowsWithTimeout *int64 `json:"flows_with_timeout,omitempty"`
	// FLoss and LAck count the timeouts that a full window loss (FLoss-TO) or a lack of ACKs (LAck-TO) caused; a
	// handshake's timeouts are neither. Absent if not known for every flow: the lab does not know them.
	FLoss *int64 `json:"timeouts_floss,omitempty"`
	LAck  *int64 `json:"timeouts_lack,omitempty"`
	// OutOfOrder counts the segments that arrived before their predecessors, see result.OutOfOrder. Absent for UDP, and if not known
	// for every flow.
	OutOfOrder *int64 `json:"out_of_order,omitempty"`
	// ThroughputMbps is the group's payload over the length of the window (the whole run if none).
	ThroughputMbps *float64 `json:"throughput_mbps,omitempty"`
	// FCT is the distribution over finished flows with a size, in ms.
	FCT *Distribution `json:"fct_ms,omitempty"`
	// Goodput is the distribution over flows: the payload of each over its own active time, in Mbit/s.
	Goodput *Distribution `json:"goodput_mbps,omitempty"`
	// Jain is Jain's index of the flows' goodput: (Σx)² / (n Σx²), 1/n to 1.
	Jain *float64 `json:"jain,omitempty"`
	// Series is the distribution over time of the group's rate in each full step of measure.series, in Mbit/s.
	Series *Distribution `json:"series_mbps,omitempty"`
	// Settling measures how soon flows without a size have fair shares after one of them joins or leaves.
	Settling *Settling `json:"settling,omitempty"`
	ByMouse  *ByMouse  `json:"by_mouse,omitempty"`
	// Slowdown is the distribution over the flows of FCT: completion time divided by the time that the flow would
	// take alone on its path. Absent if that is not known for every flow.
	Slowdown *Distribution `json:"slowdown,omitempty"`
	// BySize separates the flows by size; absent if all sizes are in one class.
	BySize    *BySize    `json:"by_size,omitempty"`
	Deadlines *Deadlines `json:"deadlines,omitempty"`

	values map[string][]float64 // of the distributions, by metric
}

// Level is a number over time: its mean and maximum.
type Level struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// ByMouse has the papers' metrics: for each mouse (a pair of hosts and a connection index) a figure over its
// epochs or requests, then the distribution of that figure over the mice. A flow that did not finish counts as
// UnfinishedScoreMs.
type ByMouse struct {
	Mean  *Distribution `json:"mean_ms,omitempty"` // the papers' AFCT
	SD    *Distribution `json:"sd_ms,omitempty"`   // population
	P99   *Distribution `json:"p99_ms,omitempty"`
	Max   *Distribution `json:"max_ms,omitempty"`
	Drops *Distribution `json:"drops,omitempty"` // dropped packets of a mouse, all epochs together
}

// BySize divides the flows of a group by the bytes they had to send, in decades. A class without flows is absent.
type BySize struct {
	To1KB     *SizeClass `json:"to_1kb,omitempty"` // up to 1000 bytes
	To10KB    *SizeClass `json:"to_10kb,omitempty"`
	To100KB   *SizeClass `json:"to_100kb,omitempty"`
	To1MB     *SizeClass `json:"to_1mb,omitempty"`
	To10MB    *SizeClass `json:"to_10mb,omitempty"`
	Above10MB *SizeClass `json:"above_10mb,omitempty"`
}

// SizeClass has the metrics of the flows of a size class; see Group.
type SizeClass struct {
	Flows      int           `json:"flows"`
	Unfinished int           `json:"unfinished"`
	FCT        *Distribution `json:"fct_ms,omitempty"`
	Slowdown   *Distribution `json:"slowdown,omitempty"`
}

// UnfinishedScoreMs is the completion time of an unfinished flow in ByMouse, in ms of the experiment's own time,
// as in the published scripts of paper 003.
const UnfinishedScoreMs = 2000

// Deadlines counts the flows with a deadline. An unfinished flow missed it.
type Deadlines struct {
	Flows  int `json:"flows"`
	Missed int `json:"missed"`
	// MissedIDs lists the flows that missed: epoch x (number of mice in the group) + mouse, from 0. With one epoch
	// this is the index of the mouse.
	MissedIDs []int `json:"missed_ids"`
}

// PortResult has the metrics of one port. The pseudo-port "all" has only the drops, of every port.
type PortResult struct {
	RateMbps    *float64 `json:"rate_mbps,omitempty"`
	BufferBytes *int64   `json:"buffer_bytes,omitempty"`
	// Queue is the distribution over time: each length is weighted by its duration; N is the number of samples.
	Queue *Distribution `json:"queue_bytes,omitempty"`
	Drops *int64        `json:"drops,omitempty"` // packets; absent when records of drops were lost
	Marks *int64        `json:"marks,omitempty"` // packets that arrived without CE and left with it
	// Utilisation is the used share of the port's rate, 0 to 1; frames have the size that the port's shaper
	// counts.
	Utilisation *float64 `json:"utilisation,omitempty"`
	// Law has the laws' own metrics at this port.
	Law LawResult `json:"law,omitempty"`

	levels []level              // of Queue
	values map[string][]float64 // of Law, by metric
}

// AllPorts is the name of the pseudo-port for all ports together.
const AllPorts = "all"

// Distribution summarises a set of values, or a quantity over time. Quantiles of a set of n values are
// interpolated between order statistics. With the sorted values x[0..n-1] and h = (n-1)p, a quantile is x[⌊h⌋] +
// (h-⌊h⌋)(x[⌊h⌋+1] - x[⌊h⌋]): the "type 7" of Hyndman and Fan, the default of R and NumPy. A quantile over time is
// the smallest level that the quantity did not exceed for at least the share p of the time. SD is that of the
// population (divisor n).
type Distribution struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
	Min  float64 `json:"min"`
	P10  float64 `json:"p10"`
	P25  float64 `json:"p25"`
	P50  float64 `json:"p50"`
	P75  float64 `json:"p75"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Claim is one claim of the file, decided in one world for one point on the axes that it leaves open.
type Claim struct {
	Claim string `json:"claim"`
	Paper string `json:"paper,omitempty"` // the paper's statement, if the claim is the paper's
	Ours  string `json:"ours,omitempty"`  // what this project asks, if the claim is its own
	// Source is the place in the paper. Value is the paper's value of the left side. Figure is the name of the
	// figure that shows it.
	Source string            `json:"source,omitempty"`
	Value  string            `json:"value,omitempty"`
	Figure string            `json:"figure,omitempty"`
	World  string            `json:"world"`
	For    map[string]string `json:"for"`
	Seeds  []int64           `json:"seeds,omitempty"` // of Left and Right, in order
	Left   PerSeed           `json:"left"`
	Right  PerSeed           `json:"right"`
	// Holds is nil when the claim could not be decided: a metric is absent, a division by 0, or a fatal unmet
	// setting.
	Holds *bool `json:"holds"`
	// Undecided is true if the claim is about something that was not asked for, or if an unmet setting (see Unmet)
	// is fatal to a run that it compares. This is not a failure.
	Undecided bool   `json:"undecided,omitempty"`
	Why       string `json:"why,omitempty"` // the reason when Holds is nil
	// Because is the cause that the file gives if the claim does not hold; ignore it if the claim holds.
	Because string `json:"because,omitempty"`
}

// PerSeed has one value for each seed. NaN means that there is no value; it is null in JSON.
type PerSeed []float64

// MarshalJSON writes NaN and infinities as null.
func (s PerSeed) MarshalJSON() ([]byte, error) {
	out := make([]*float64, len(s))
	for i, v := range s {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[i] = &s[i]
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads null as NaN.
func (s *PerSeed) UnmarshalJSON(b []byte) error {
	var in []*float64
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*s = make(PerSeed, len(in))
	for i, v := range in {
		(*s)[i] = math.NaN()
		if v != nil {
			(*s)[i] = *v
		}
	}
	return nil
}

// WriteJSON writes the document, indented, with a final newline. Lists that the format guarantees are [] when
// empty.
func (d *Document) WriteJSON(w io.Writer) error {
	out := *d
	if out.Skipped == nil {
		out.Skipped = []Skip{}
	}
	if out.Runs == nil {
		out.Runs = []*Run{}
	}
	if out.Claims == nil {
		out.Claims = []Claim{}
	}
	if len(out.File) == 0 {
		out.File = json.RawMessage("{}")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(&out); err != nil {
		return fmt.Errorf("write results of %s: %w", d.Experiment, err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ReadJSON reads a stored document. It refuses a file of another form, with text after the document, or with runs
// that could not be shown.
func ReadJSON(r io.Reader) (*Document, error) {
	dec := json.NewDecoder(r)
	var in struct {
		Document
		Table *table `json:"table"` // of a summary of many runs, which has no others
	}
	if err := dec.Decode(&in); err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	d := in.Document
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read results: there is text after the document")
	}
	if d.Experiment == "" {
		return nil, errors.New("read results: no \"experiment\": this is not a document of weir run --json")
	}
	if in.Table != nil {
		runs, err := in.Table.runs()
		if err != nil {
			return nil, fmt.Errorf("read results: table: %w", err)
		}
		d.Runs = append(d.Runs, runs...)
	}
	for i, r := range d.Runs {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("read results: runs[%d]: %w", i, err)
		}
	}
	return &d, nil
}

// check returns why a run is unusable for readers of documents, or nil.
func (r *Run) check() error {
	if r == nil || r.World == "" || r.Scheme == "" {
		return errors.New("world and scheme are needed")
	}
	if !(r.Scale > 0) {
		return fmt.Errorf("scale is %v; it must be above 0", r.Scale)
	}
	for _, w := range append([]Window{{r.Groups, r.Ports}}, windowList(r.Windows)...) {
		for name, g := range w.Groups {
			if g == nil {
				return fmt.Errorf("group %s is null", name)
			}
		}
		for name, p := range w.Ports {
			if p == nil {
				return fmt.Errorf("port %s is null", name)
			}
		}
	}
	return nil
}

func windowList(m map[string]Window) []Window {
	var out []Window
	for _, w := range m {
		out = append(out, w)
	}
	return out
}
