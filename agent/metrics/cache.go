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
	freshFor = time.Second // what was read is answered with for so long at least
	// costShare bounds the CPU that scrapers can make the daemon spend on reading: one part of so many.
	costShare = 20
	// answersMax is how often one reading is handed out: several Prometheis, probes and a person.
	answersMax = 16
)

// cache holds the last reading and makes a new one when that is old and somebody asks.
type cache struct {
	source Source
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	reading *reading
	failed  string // the last error, said once
}

// reading is what was read at one moment. It does not change, but for what is counted under cache.mu.
type reading struct {
	text   []byte
	gzip   []byte // made when first asked for
	well   bool
	health string
	until  time.Time // it is fresh
	left   int       // answers that it is good for
}

func newCache(s Source, l *slog.Logger, now func() time.Time) *cache {
	return &cache{source: s, log: l, now: now}
}

// take gives a fresh reading, or nil when it was handed out too often. Whoever comes while a reading is
// made waits for that one.
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

// extend sets how long the reading that was begun at this moment is fresh.
func (c *cache) extend(begun time.Time) {
	end := c.now()
	c.reading.until = end.Add(max(freshFor, costShare*end.Sub(begun)))
}

func (c *cache) read() *reading {
	r := &reading{well: true, health: "ok", left: answersMax}
	families, err := c.source.Gather.Gather()
	var out bytes.Buffer
	e := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families { // with an error, too: what could be had
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

// say logs an error that was not there the last time.
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
	_, _ = z.Write(text)                              // a bytes.Buffer takes everything
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
		http.Error(w, "asked too often", http.StatusTooManyRequests)
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
	_, _ = fmt.Fprintln(w, now.health) // a client that went away
}

func (r *reading) serveMetrics(w http.ResponseWriter, zipped bool) {
	body := r.text
	if zipped {
		body = r.gzip
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a client that went away
}
