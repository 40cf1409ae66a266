package inband

import "slices"

// maxRuns is how many runs of controllers a receiver knows. Frames of a forgotten run pass here if they are sent again. The
// agent's fence refuses them: their term is over, or another controller has it.
const maxRuns = 16

// Receiver decides which frames of one machine are taken. It must not be used by two goroutines at a time.
type Receiver struct {
	tagger *Tagger
	own    MAC
	runs   []run // the one that was heard last is the last
}

type run struct{ number, counter uint64 }

// NewReceiver returns the receiver of a machine with this address and key, for frames of a form.
func NewReceiver(form Form, own MAC, key Key) *Receiver {
	return &Receiver{tagger: NewTagger(form, key), own: own}
}

// Take returns a frame, whose command is part of b, or why it is refused. A frame that another one of its run overtook is
// refused, too: a later command replaces it.
func (r *Receiver) Take(b []byte) (f Frame, why Reason) {
	f, why = r.tagger.Decode(b)
	if why != Taken {
		return f, why
	}
	if f.To != r.own {
		return f, Elsewhere
	}
	at := slices.IndexFunc(r.runs, func(o run) bool { return o.number == f.Run })
	switch {
	case at >= 0 && f.Counter <= r.runs[at].counter:
		return f, Replayed
	case at >= 0:
		r.runs = slices.Delete(r.runs, at, at+1)
	case len(r.runs) == maxRuns:
		r.runs = slices.Delete(r.runs, 0, 1)
	}
	r.runs = append(r.runs, run{f.Run, f.Counter})
	return f, Taken
}
