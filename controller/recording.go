package controller

import (
	"fmt"
	"path/filepath"

	"weir/config"
	"weir/controller/record"
	"weir/law"
)

// minRecord is the least size of a recording.
const minRecord law.Bytes = 1e6

func checkRecord(c *config.Checker, f *File) {
	switch {
	case f.Record != "" && !filepath.IsAbs(f.Record):
		c.Fail([]string{"record"}, fmt.Sprintf("%q is no absolute path", config.Clip(f.Record)), "such as /var/lib/weir/record/c1")
	case f.RecordSize != 0 && f.Record == "":
		c.Fail([]string{"record_size"}, "nothing is recorded", "record: PATH")
	case f.RecordSize != 0 && f.RecordSize < minRecord:
		c.Fail([]string{"record_size"}, fmt.Sprintf("%v is too small", f.RecordSize), "1MB or more")
	}
}

// startRecord begins the recording of a term; nil: none. A full disk must not end control, so a failure is only logged.
func (r *role) startRecord() *record.Writer {
	if r.cfg.Record == "" {
		return nil
	}
	w, err := record.New(record.Config{
		Path: r.cfg.Record, Bytes: int64(r.cfg.RecordSize), Controller: r.cfg.Name, Weir: r.cfg.Version, Log: r.log,
	})
	if err != nil {
		r.log.Error("nothing is recorded", "error", err)
		r.unrecorded.Store(&err)
		return nil
	}
	r.unrecorded.Store(nil)
	r.log.Info("events and actions of the laws are recorded", "path", r.cfg.Record)
	return w
}

// endRecord ends the recording of a term, whose laws have ended.
func (r *role) endRecord(w *record.Writer) {
	if err := w.Close(); err != nil {
		r.log.Error("the end of the recording is missing", "error", err)
	}
}

func (r *term) recordStatus() *record.Status {
	if err := r.unrecorded.Load(); err != nil {
		return &record.Status{Path: r.cfg.Record, Error: (*err).Error()}
	}
	return r.core.record.Status()
}
