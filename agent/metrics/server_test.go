package metrics

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"weir/datapath/testnet"
)

// serving starts a server on a free port of the loopback.
func serving(t *testing.T, s Source, change func(*limits)) (*Server, string) {
	t.Helper()
	server := New(s)
	if change != nil {
		change(&server.limits)
	}
	if err := server.Listen("127.0.0.1:0", false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server, server.Address().String()
}

// answer is an answer of the server.
type answer struct {
	code   int
	header http.Header
}

// ask sends what it is given and gives the answer, and its body.
func ask(t *testing.T, address, method, path string, header map[string]string) (answer, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	client := http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	var body io.Reader = response.Body
	if response.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(text)
}

func registry(t *testing.T) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "answer", Help: "The answer."})
	g.Set(42)
	r.MustRegister(g)
	return r
}

func TestServer_Answers(t *testing.T) {
	health := "enforced"
	_, address := serving(t, Source{Gather: registry(t), Health: func() (bool, string) { return health == "enforced", health }}, nil)
	for _, row := range []struct {
		method, path string
		header       map[string]string
		code         int
		says         string
	}{
		{"GET", "/metrics", nil, 200, "\nanswer 42\n"},
		{"GET", "/metrics?name[]=x", nil, 200, "\nanswer 42\n"},
		{"GET", "/metrics", map[string]string{"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text"}, 200, "\nanswer 42\n"},
		{"GET", "/healthz", nil, 200, "enforced\n"},
		{"POST", "/metrics", nil, 405, "only GET"},
		{"HEAD", "/metrics", nil, 405, ""},
		{"GET", "/", nil, 404, "/metrics and /healthz"},
		{"GET", "/metrics/", nil, 404, "/metrics and /healthz"},
		{"GET", "/debug/pprof/", nil, 404, "/metrics and /healthz"},
	} {
		answer, text := ask(t, address, row.method, row.path, row.header)
		if answer.code != row.code || !strings.Contains(text, row.says) {
			t.Errorf("%s %s: %d %q", row.method, row.path, answer.code, text)
		}
		if row.code == 200 && row.path != "/healthz" && !strings.HasPrefix(answer.header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("%s %s: %v", row.method, row.path, answer.header)
		}
		if zipped := row.header["Accept-Encoding"] != ""; zipped != (answer.header.Get("Content-Encoding") == "gzip") {
			t.Errorf("%s %s: %v", row.method, row.path, answer.header)
		}
	}
}

// A client cannot keep a request open by writing without end.
func TestServer_RefusesLongHeaders(t *testing.T) {
	s := &source{}
	_, address := serving(t, Source{Gather: s}, nil)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	written := 0
	for n, err := 0, error(nil); err == nil && written < 32<<20; written += n {
		n, err = fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: %s", strings.Repeat("x", 1<<20))
	}
	if written >= 32<<20 || s.reads > 0 {
		t.Errorf("took %d bytes of one request, %d readings", written, s.reads)
	}
}

func TestServer_SaysWhatIsNotWell(t *testing.T) {
	s, address := serving(t, Source{Gather: registry(t), Health: func() (bool, string) { return false, "degraded: half of it" }}, nil)
	at := time.Now()
	s.cache.now = func() time.Time { return at } // so that a slow machine makes no new reading
	if answer, text := ask(t, address, "GET", "/healthz", nil); answer.code != 503 || text != "degraded: half of it\n" {
		t.Errorf("%d %q", answer.code, text)
	}
	for range answersMax - 1 {
		ask(t, address, "GET", "/healthz", nil)
	}
	if answer, _ := ask(t, address, "GET", "/metrics", nil); answer.code != 429 || answer.header.Get("Retry-After") != "1" {
		t.Errorf("asked %d times at once: %d", answersMax+1, answer.code)
	}
}

// large is more than fits in the buffers of two sockets.
type large []*dto.MetricFamily

func (l large) Gather() ([]*dto.MetricFamily, error) { return l, nil }

func newLarge(t *testing.T) large {
	t.Helper()
	r := prometheus.NewRegistry()
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "large", Help: "Much."}, []string{"n"})
	for n := range 4_000 {
		g.WithLabelValues(fmt.Sprintf("%03000d", n)).Set(1)
	}
	r.MustRegister(g)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// Clients that send nothing, or read nothing, use all connections, but not for long: later clients are served. Here a stuck
// client has the only connection. So when a later client is served, the server has closed the connection of the stuck one.
func TestServer_CutsOffWhoIsStuck(t *testing.T) {
	families := newLarge(t)
	for sends, what := range map[string]string{
		"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n": "the client that read nothing",
		"GET /metrics HT":                          "the client that sent half a request",
	} {
		t.Run(what, func(t *testing.T) {
			s, address := serving(t, Source{Gather: families}, func(l *limits) {
				l.headerTimeout, l.writeTimeout, l.connections = time.Second, time.Second, 1
			})
			whole := int64(len(s.cache.take(false).text)) // read it now, so that a slow machine does not cause a timeout
			stuck, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stuck.Close() }()
			fmt.Fprint(stuck, sends)
			testnet.Until(t, "a later client is served", func() bool { return healthy(t, address) })
			// Its connection was closed in the middle of its answer, or before it.
			_ = stuck.SetReadDeadline(time.Now().Add(testnet.Patience))
			n, err := io.Copy(io.Discard, stuck)
			if n >= whole || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s was not cut off: it has %d bytes, the metrics are %d, %v", what, n, whole, err)
			}
		})
	}
}

// healthy reports whether the server answers a probe. On a slow machine its timeouts may end the probe too.
func healthy(t *testing.T, address string) bool {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testnet.Patience}
	response, err := client.Do(r)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func TestCheckListen(t *testing.T) {
	for listen, good := range map[string]bool{
		"": true, "127.0.0.1:9187": true, ":9187": true, "[::1]:1": true, "localhost:0": true, "192.0.2.7:65535": true, "[fe80::1%eth0]:1": true,
		"127.0.0.1": false, "9187": false, "127.0.0.1:http": false, "127.0.0.1:65536": false, "a.example:9187": false, "127.0.0.1:-1": false,
	} {
		if err := CheckListen(listen); (err == nil) != good {
			t.Errorf("%q: %v", listen, err)
		}
	}
	for listen, local := range map[string]bool{
		"127.0.0.1:1": true, "127.5.0.1:1": true, "[::1]:1": true, "localhost:1": true, ":1": false, "0.0.0.0:1": false, "192.0.2.7:1": false, "x": false,
	} {
		if Local(listen) != local {
			t.Errorf("%q: local %t", listen, !local)
		}
	}
}

// An error of listening has a remedy, and the server continues on its former address.
func TestServer_ListenFails(t *testing.T) {
	other, taken := serving(t, Source{Gather: registry(t)}, nil)
	s, address := serving(t, Source{Gather: registry(t)}, nil)
	for listen, says := range map[string]string{
		taken: "another program, or another switch of this machine, has this port: give another one", "192.0.2.7:9187": "has no such address",
		"x:y": "an address of this machine and a port",
	} {
		if err := s.Listen(listen, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", listen, err)
		}
		if answer, _ := ask(t, address, "GET", "/healthz", nil); answer.code != 200 {
			t.Errorf("after %s: %d", listen, answer.code)
		}
	}
	other.Close()
	if err := s.Listen(taken, false); err != nil {
		t.Fatal(err)
	}
	ask(t, taken, "GET", "/healthz", nil)
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the address before is still served")
	}
	if err := s.Listen("", false); err != nil || s.Address() != nil {
		t.Errorf("to nowhere: %v, %v", err, s.Address())
	}
}

// The server gets an address as soon as its former owner leaves it.
func TestServer_IsPatient(t *testing.T) {
	other, taken := serving(t, Source{Gather: registry(t)}, nil)
	s := New(Source{Gather: registry(t)})
	s.limits.retryEvery = 10 * time.Millisecond
	defer s.Close()
	if err := s.Listen(taken, true); err != nil || s.Address() != nil {
		t.Fatalf("%v, %v", err, s.Address())
	}
	other.Close()
	testnet.Until(t, "the address is had", func() bool { return s.Address() != nil })
	if answer, _ := ask(t, taken, "GET", "/healthz", nil); answer.code != 200 {
		t.Errorf("%d", answer.code)
	}
}

// From this machine only to the whole network and back, on one port: each address blocks the other.
func TestServer_ChangesHost(t *testing.T) {
	s, address := serving(t, Source{Gather: registry(t)}, nil)
	_, number, _ := net.SplitHostPort(address)
	for _, listen := range []string{"0.0.0.0:" + number, "127.0.0.1:" + number} {
		if err := s.Listen(listen, false); err != nil {
			t.Fatal(err)
		}
		if answer, _ := ask(t, "127.0.0.1:"+number, "GET", "/healthz", nil); answer.code != 200 {
			t.Errorf("on %s: %d", listen, answer.code)
		}
		if at := s.Address().String(); at != listen { // [::] would be IPv6, too
			t.Errorf("on %s: serves at %s", listen, at)
		}
	}
}
