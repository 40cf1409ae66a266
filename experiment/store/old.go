package store

import (
	"io"
	"time"

	"weir/experiment/result"
	"weir/law"
)

// Formats of entries that earlier builds wrote. They no longer change.

// textEntry is an Entry of a build whose unmet settings were a list of texts.
type textEntry struct {
	Weir   string
	Kernel string
	Ended  time.Time
	Took   time.Duration
	Raw    *textRaw
}

type textRaw struct {
	RTT          time.Duration
	Unmet        []string
	Partial      bool
	Duration     time.Duration
	Bin          time.Duration
	Flows        []result.Flow
	Ports        []result.Port
	Drops        []result.Drop
	LostRecords  uint64
	Busy         []float64
	PayloadShare float64
}

// decodeText reads a textEntry.
func decodeText(r io.Reader) (*Entry, error) {
	var e textEntry
	if err := decodeInto(r, &e); err != nil {
		return nil, err
	}
	if e.Raw == nil {
		return nil, errNoRaw
	}
	raw := &result.Raw{
		RTT: e.Raw.RTT, Partial: e.Raw.Partial, Duration: e.Raw.Duration, Bin: e.Raw.Bin, Flows: e.Raw.Flows,
		Ports: e.Raw.Ports, Drops: e.Raw.Drops, LostRecords: e.Raw.LostRecords, Busy: e.Raw.Busy, PayloadShare: e.Raw.PayloadShare,
	}
	for _, text := range e.Raw.Unmet {
		raw.Unmet = append(raw.Unmet, result.OldUnmet(text))
	}
	return &Entry{Weir: e.Weir, Kernel: e.Kernel, Ended: e.Ended, Took: e.Took, Raw: raw}, nil
}

// fixedLaws has the metrics in an entry of form 0, of the only law that then had any.
type fixedLaws struct {
	Raw *struct {
		Laws []struct {
			At            time.Duration
			Port          string
			Flows         uint32
			Window, Grant uint64 // bytes; a grant of 0: no flow was limited
		}
		Acks *struct{ All, Rewritten, Told, Left uint64 }
	}
}

// decodeLaws adds to raw the laws' metrics of an entry of form 0.
func decodeLaws(r io.Reader, raw *result.Raw) error {
	var e fixedLaws
	if err := decodeInto(r, &e); err != nil {
		return err
	}
	for _, s := range e.Raw.Laws {
		add := func(metric string, value float64) {
			raw.LawSamples = append(raw.LawSamples, result.LawSample{At: s.At, Port: s.Port, Value: law.Value{Metric: metric, Value: value}})
		}
		add("flows", float64(s.Flows))
		if s.Grant > 0 {
			add("grant_bytes", float64(s.Grant))
		}
		add("window_bytes", float64(s.Window))
	}
	if a := e.Raw.Acks; a != nil {
		add := func(metric string, n uint64) {
			raw.LawTotals = append(raw.LawTotals, law.Value{Metric: metric, Value: float64(n)})
		}
		add("acks", a.All)
		add("acks_rewritten", a.Rewritten)
		if a.Told+a.Left > 0 {
			add("acks_advertised", a.Told)
			add("acks_left", a.Left)
		}
	}
	return nil
}
