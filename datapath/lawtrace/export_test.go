package lawtrace

// NewDeaf makes a recorder with a ring buffer of so many bytes, which nobody empties before Stop.
func NewDeaf(ringBytes uint32) (*Recorder, error) {
	r, err := newRecorder(ringBytes)
	if err != nil {
		return nil, err
	}
	close(r.stop)
	r.stopped.Wait()
	r.stop = make(chan struct{})
	return r, nil
}
