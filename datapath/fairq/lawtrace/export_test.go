package lawtrace

// NewDeaf makes a recorder with a ring buffer of so many bytes, which nobody empties before Stop.
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

// NewShort makes a recorder of a trace of so many bytes at most.
func NewShort(bytesMax int) (*Recorder, error) { return newRecorder(ringBytes, bytesMax) }
