package metrics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
)

const (
	freshFor = time.Second // least time for which a reading is served
	// costShare limits the CPU time of readings for scrapers to one part in so many.
	costShare = 20
	// answersMax is how often one reading is served: to several Prometheus servers, probes and a person.
	answersMax = 16
)

// cache has the last reading. It makes a new one for a request if the last one is old.
type cache struct {
	source Source
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	reading *reading
	failed  string // the last error, logged once
}

// reading has the metrics of one moment. Only its counters change, under cache.mu.
type reading struct {
	text   []byte
	gzip   []byte // made when first asked for
	well   bool
	health string
	until  time.Time // end of its validity
	left   int       // answers that it may still be used for
}

func newCache(s Source, l *slog.Logger, now func() time.Time) *cache {
	return &cache{source: s, log: l, now: now}
}

// take returns a fresh reading, or nil if it was served too often. A request during a reading waits for it.
func (c *cache) take(zipped bool) *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.reading == nil || !now.Before(c.reading.until) {
		c.reading = c.read()
		c.extend(now)
	}
	r := c.reading
	if r.left == 0 {
		return nil
	}
	r.left--
	if zipped && r.gzip == nil {
		begun := c.now()
		r.gzip = compress(r.text)
		r.until = r.until.Add(costShare * c.now().Sub(begun))
	}
	return r
}

// extend sets the validity of the reading that began at this moment.
func (c *cache) extend(begun time.Time) {
	end := c.now()
	c.reading.until = end.Add(max(freshFor, costShare*end.Sub(begun)))
}

func (c *cache) read() *reading {
	r := &reading{well: true, health: "ok", left: answersMax}
	families, err := c.source.Gather.Gather()
	var out bytes.Buffer
	e := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families { // after an error too: some metrics may be there
		if encodeErr := e.Encode(f); encodeErr != nil && err == nil {
			err = fmt.Errorf("write %s: %w", f.GetName(), encodeErr)
		}
	}
	c.say(err)
	r.text = out.Bytes()
	if c.source.Health != nil {
		r.well, r.health = c.source.Health()
	}
	return r
}

// say logs an error that is new since the last reading.
func (c *cache) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.failed {
		c.log.Warn("some metrics are missing", "error", text)
	}
	c.failed = text
}

func compress(text []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // its only error is an unknown level
	_, _ = z.Write(text)                              // a bytes.Buffer never fails
	_ = z.Close()
	return out.Bytes()
}

// ServeHTTP answers GET /metrics and GET /healthz.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" && r.URL.Path != "/healthz" {
		http.Error(w, "there are /metrics and /healthz", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	metrics := r.URL.Path == "/metrics"
	zipped := metrics && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	now := s.cache.take(zipped)
	if now == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if metrics {
		now.serveMetrics(w, zipped)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !now.well {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, now.health) // fails if the client has left
}

func (r *reading) serveMetrics(w http.ResponseWriter, zipped bool) {
	body := r.text
	if zipped {
		body = r.gzip
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // fails if the client has left
}
