package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"

	"weir/experiment/result"
)

// Digest returns a hash of all measurements of a run: every flow, sample and drop. It is equal for runs that are equal
// to the last bit. Values that depend on the machine (Busy) are not part of it.
func Digest(raw *result.Raw) string {
	d := digester{hash: sha256.New()}
	d.numbers(int64(raw.RTT), truth(raw.Partial), int64(raw.Duration), int64(raw.Bin), int64(raw.LostRecords))
	var unmet []string
	for _, u := range raw.Unmet {
		unmet = append(unmet, u.Text)
	}
	d.texts(unmet...)
	d.numbers(int64(len(raw.Flows)))
	for i := range raw.Flows {
		d.flow(&raw.Flows[i])
	}
	d.numbers(int64(len(raw.Ports)))
	for i := range raw.Ports {
		p := &raw.Ports[i]
		d.texts(p.Name)
		d.texts(p.Labels...)
		d.numbers(p.RateBps, p.Buffer, int64(len(p.Samples)))
		for _, s := range p.Samples {
			d.numbers(int64(s.At), int64(s.Step), s.Count, s.Backlog, int64(s.Marks), int64(s.Sent))
		}
	}
	d.numbers(int64(len(raw.Drops)))
	for _, drop := range raw.Drops {
		d.numbers(int64(drop.At), int64(drop.Bytes))
		d.texts(drop.Port, drop.Reason)
		d.key(drop.Key)
	}
	d.numbers(int64(len(raw.LawSamples)))
	for _, l := range raw.LawSamples {
		d.numbers(int64(l.At), int64(math.Float64bits(l.Value.Value)))
		d.texts(l.Port, l.Metric)
	}
	for _, v := range raw.LawTotals {
		d.numbers(int64(math.Float64bits(v.Value)))
		d.texts(v.Metric)
	}
	return hex.EncodeToString(d.hash.Sum(nil))
}

// digester writes values so that different sequences of them are different bytes.
type digester struct {
	hash hash.Hash
	b    []byte
}

func (d *digester) flow(f *result.Flow) {
	d.texts(f.Group, f.Item, f.Src, f.Dst)
	d.numbers(int64(f.Mouse), int64(f.Epoch), int64(f.Start), int64(f.End), truth(f.Done), truth(f.Endless),
		f.Bytes, int64(f.Timeouts), truth(f.Causes.Known), int64(f.Causes.FLoss), int64(f.Causes.LAck), int64(f.Deadline), int64(len(f.Delivered)))
	d.key(f.Key)
	for _, v := range f.Delivered {
		d.numbers(int64(v.Bin), int64(v.Bytes))
	}
}

func (d *digester) key(k result.Key) {
	d.numbers(int64(k.Proto))
	d.texts(k.Src.String(), k.Dst.String())
}

func (d *digester) numbers(values ...int64) {
	d.b = d.b[:0]
	for _, v := range values {
		d.b = binary.BigEndian.AppendUint64(d.b, uint64(v))
	}
	d.hash.Write(d.b)
}

func (d *digester) texts(texts ...string) {
	d.b = binary.BigEndian.AppendUint64(d.b[:0], uint64(len(texts)))
	for _, t := range texts {
		d.b = binary.BigEndian.AppendUint64(d.b, uint64(len(t)))
		d.b = append(d.b, t...)
	}
	d.hash.Write(d.b)
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
