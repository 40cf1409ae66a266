package store

import (
	"io"
	"time"

	"weir/experiment/result"
)

// oldEntry is an Entry of a build for which what is unmet was a list of texts. It does not change any more.
type oldEntry struct {
	Weir   string
	Kernel string
	Ended  time.Time
	Took   time.Duration
	Raw    *oldRaw
}

type oldRaw struct {
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
	Laws         []result.LawSample
	Acks         *result.LawAcks
	PayloadShare float64
}

// decodeOld reads an oldEntry.
func decodeOld(r io.Reader) (*Entry, error) {
	var e oldEntry
	if err := decodeInto(r, &e); err != nil {
		return nil, err
	}
	if e.Raw == nil {
		return nil, errNoRaw
	}
	raw := &result.Raw{
		RTT: e.Raw.RTT, Partial: e.Raw.Partial, Duration: e.Raw.Duration, Bin: e.Raw.Bin, Flows: e.Raw.Flows,
		Ports: e.Raw.Ports, Drops: e.Raw.Drops, LostRecords: e.Raw.LostRecords, Busy: e.Raw.Busy, Laws: e.Raw.Laws,
		Acks: e.Raw.Acks, PayloadShare: e.Raw.PayloadShare,
	}
	for _, text := range e.Raw.Unmet {
		raw.Unmet = append(raw.Unmet, result.OldUnmet(text))
	}
	return &Entry{Weir: e.Weir, Kernel: e.Kernel, Ended: e.Ended, Took: e.Took, Raw: raw}, nil
}
