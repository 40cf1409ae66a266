package metrics

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// source is a gatherer that counts readings and has its own clock.
type source struct {
	now    time.Time
	reads  int
	takes  time.Duration
	err    error
	health string
	log    strings.Builder
}

func (s *source) Gather() ([]*dto.MetricFamily, error) {
	s.reads++
	s.now = s.now.Add(s.takes)
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "reads_total", Help: "Readings."})
	c.Add(float64(s.reads))
	r.MustRegister(c)
	families, _ := r.Gather()
	return families, s.err
}

func (s *source) cache() *cache {
	s.now = time.Unix(1000, 0)
	return newCache(Source{Gather: s, Health: func() (bool, string) { return s.health == "", s.health }},
		slog.New(slog.NewTextHandler(&s.log, nil)), func() time.Time { return s.now })
}

func TestCache_ReadsOnceASecond(t *testing.T) {
	s := &source{}
	c := s.cache()
	for range 5 {
		s.now = s.now.Add(150 * time.Millisecond)
		if r := c.take(false); r == nil || !strings.Contains(string(r.text), "reads_total 1\n") {
			t.Fatalf("not the first reading: %+v", r)
		}
	}
	s.now = s.now.Add(time.Second)
	if r := c.take(false); !strings.Contains(string(r.text), "reads_total 2\n") || s.reads != 2 {
		t.Errorf("after a second: %d readings, %s", s.reads, r.text)
	}
}

// For any number of requests, reading takes at most a twentieth of one CPU.
func TestCache_BoundsTheShareOfReading(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 3 * time.Second} {
		s := &source{takes: takes}
		c := s.cache()
		for end := s.now.Add(10 * time.Minute); s.now.Before(end); s.now = s.now.Add(time.Millisecond) {
			c.take(false)
		}
		if spent := time.Duration(s.reads) * takes; spent > 10*time.Minute/costShare+takes {
			t.Errorf("readings of %v: %v of 10 minutes", takes, spent)
		}
		if want := 10*time.Minute/max(freshFor+takes, (costShare+1)*takes) - 1; s.reads < int(want) {
			t.Errorf("readings of %v: only %d, want %d", takes, s.reads, want)
		}
	}
}

func TestCache_HandsOneReadingOutSoOften(t *testing.T) {
	s := &source{}
	c := s.cache()
	for n := range answersMax {
		if c.take(n%2 == 0) == nil {
			t.Fatalf("refused after %d", n)
		}
	}
	if c.take(false) != nil || s.reads != 1 {
		t.Errorf("more than %d answers of one reading; %d readings", answersMax, s.reads)
	}
	s.now = s.now.Add(freshFor)
	if c.take(false) == nil {
		t.Error("refused a second later")
	}
}

// After an error, the metrics that could be read are served. The same error is logged once.
func TestCache_SaysErrorsOnce(t *testing.T) {
	s := &source{err: errors.New("half of it")}
	c := s.cache()
	next := func() string {
		s.now = s.now.Add(2 * freshFor)
		return string(c.take(false).text)
	}
	for range 3 {
		if !strings.Contains(next(), "reads_total") {
			t.Error("what was gathered is lost")
		}
	}
	if n := strings.Count(s.log.String(), "half of it"); n != 1 {
		t.Errorf("said %d times", n)
	}
	s.err = nil
	next()
	s.err = errors.New("half of it")
	next()
	if n := strings.Count(s.log.String(), "half of it"); n != 2 {
		t.Errorf("after a reading without error: logged %d times", n)
	}
}
