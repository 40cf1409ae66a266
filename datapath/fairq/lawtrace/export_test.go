package lawtrace

// NewDeaf returns a recorder with a ring buffer of this many bytes, which nobody reads before Stop.
func NewDeaf(ringBytes uint32) (*Recorder, error) {
	r, err := newRecorder(ringBytes, bytesMax)
	if err != nil {
		return nil, err
	}
	close(r.stop)
	r.stopped.Wait()
	r.stop = make(chan struct{})
	return r, nil
}

// NewShort returns a recorder of a trace of at most this many bytes.
func NewShort(bytesMax int) (*Recorder, error) { return newRecorder(ringBytes, bytesMax) }
