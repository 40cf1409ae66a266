package controller

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"weir/agent/metrics"
	"weir/config"
	"weir/law"
	"weir/law/forward"
	"weir/openflow/channel"
)

// File is a file of `kind: Controller`, as its author wrote it.
type File struct {
	Kind       string       `json:"kind" jsonschema:"required,enum=Controller" jsonschema_description:"Controller"`
	Version    int          `json:"version,omitempty" jsonschema:"enum=1" jsonschema_description:"version of the keys (default: 1)"`
	Name       string       `json:"name,omitempty" jsonschema:"maxLength=32,pattern=^[A-Za-z0-9_-]+$" jsonschema_description:"1 to 32 of a-z, A-Z, 0-9, - and _: name of the controller (default: default)"`
	Listen     string       `json:"listen,omitempty" jsonschema_description:"address and port that switches connect to (default: 127.0.0.1:6653)"`
	TLS        *fileTLS     `json:"tls,omitempty" jsonschema_description:"TLS with certificates on both sides (default: plain TCP; every host that reaches the address can claim to be any switch)"`
	Generation string       `json:"generation,omitempty" jsonschema_description:"file that keeps the generation id over a restart. Of the controllers that share it one is active, the others stand by (default: /var/lib/weir/controller-NAME.generation)"`
	Poll       law.Duration `json:"poll" jsonschema_description:"how often each switch is asked for its port counters, 1ms to 1h; 0s: never (default: 1s)"`
	Rates      fileRates    `json:"rates,omitzero" jsonschema_description:"limits of the packets per second that one switch may send to the controller"`
	Limits     fileLimits   `json:"limits,omitzero" jsonschema_description:"limits of all tables"`
	Metrics    fileMetrics  `json:"metrics,omitzero" jsonschema_description:"metrics for Prometheus"`

	Bus *fileBus `json:"bus,omitempty" jsonschema_description:"the bus to agents, which report from switches and hosts and carry out grants (default: none)"`

	SFlow *fileSFlow `json:"sflow,omitempty" jsonschema_description:"sFlow of switches without an agent (default: none)"`

	Record     string    `json:"record,omitempty" jsonschema_description:"record the events of the laws and their actions, for weir replay: PATH of the files, to which a number is added. They contain tenants' addresses (default: none)"`
	RecordSize law.Bytes `json:"record_size,omitempty" jsonschema_description:"of all files of record together, 1MB or more; the oldest is removed (default: 256MB)"`

	Laws map[string]map[string]any `json:"laws,omitempty" jsonschema_description:"laws that run in addition to forwarding: their names, each with its parameters ({}: defaults)"`
}

type fileTLS struct {
	CA          string `json:"ca" jsonschema:"required" jsonschema_description:"PEM file: certificate authorities of the switches"`
	Certificate string `json:"certificate" jsonschema:"required" jsonschema_description:"PEM file: certificate of the controller, then the intermediate certificates"`
	Key         string `json:"key" jsonschema:"required" jsonschema_description:"PEM file: key of the controller"`
	Named       bool   `json:"named,omitempty" jsonschema_description:"true: the certificate of a switch must have its datapath id, 16 hexadecimal digits, as common name or DNS name. false: a switch of the same authority can claim the id of one that is not connected (default: false)"`
}

type fileRates struct {
	Probe  uint32 `json:"probe,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"LLDP (default: 1000)"`
	ARP    uint32 `json:"arp,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"broadcast ARP (default: 500)"`
	Copy   uint32 `json:"copy,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"copies of SYN, of FIN and of RST, each (default: 2000)"`
	Source uint32 `json:"source,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"copies of packets from unknown hosts (default: 500)"`
	Miss   uint32 `json:"miss,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"packets to unknown hosts and to group addresses (default: 500)"`
}

type fileLimits struct {
	Switches     int `json:"switches,omitempty" jsonschema:"minimum=1,maximum=4096" jsonschema_description:"connected switches (default: 1024)"`
	Hosts        int `json:"hosts,omitempty" jsonschema:"minimum=1,maximum=65536" jsonschema_description:"known hosts of all switches (default: 4096)"`
	HostsPerPort int `json:"hosts_per_port,omitempty" jsonschema:"minimum=1,maximum=65536" jsonschema_description:"known hosts of one port (default: 64)"`
	Pins         int `json:"pins,omitempty" jsonschema:"minimum=1,maximum=65536" jsonschema_description:"pinned flows (default: 1024)"`
	Floods       int `json:"floods,omitempty" jsonschema:"minimum=1,maximum=100000" jsonschema_description:"frames per second from one port that are flooded to all host ports (default: 50)"`
}

type fileMetrics struct {
	Listen string `json:"listen" jsonschema_description:"address and port to serve on; an empty string: none (default: 127.0.0.1:9188)"`
}

const (
	defaultListen  = "127.0.0.1:6653" // 6653 is OpenFlow's (IANA)
	defaultMetrics = "127.0.0.1:9188" // next to a switch agent's 9187
	generationDir  = "/var/lib/weir"
)

// kindController is `kind: Controller`.
var kindController = sync.OnceValue(func() *config.Kind[File] {
	return config.NewKind("Controller", config.Version{Newest: 1}, config.DefaultLimits, defaultFile, check)
})

func defaultFile() *File {
	f := forward.Default()
	return &File{
		Name: "default", Listen: defaultListen, Poll: law.Duration(time.Second),
		Rates: fileRates{Probe: f.Rates.Probe, ARP: f.Rates.ARP, Copy: f.Rates.Copy, Source: f.Rates.Source, Miss: f.Rates.Miss},
		Limits: fileLimits{
			Switches: f.SwitchesMax, Hosts: f.HostsMax, HostsPerPort: f.HostsPerPort, Pins: f.PinsMax, Floods: f.FloodsPerSecond,
		},
		Metrics: fileMetrics{Listen: defaultMetrics},
	}
}

// check checks what the schema cannot express.
func check(c *config.Checker, f *File) {
	if poll := time.Duration(f.Poll); poll != 0 && (poll < time.Millisecond || poll > time.Hour) {
		c.Fail([]string{"poll"}, fmt.Sprintf("%v is out of range", poll), "1ms to 1h, or 0s for never")
	}
	if _, err := net.ResolveTCPAddr("tcp", f.Listen); err != nil {
		c.Fail([]string{"listen"}, fmt.Sprintf("%q is not an address with a port", config.Clip(f.Listen)), "such as "+defaultListen)
	}
	if err := metrics.CheckListen(f.Metrics.Listen); err != nil {
		c.Fail([]string{"metrics", "listen"}, err.Error(), "")
	}
	checkBus(c, f)
	checkSFlow(c, f)
	checkRecord(c, f)
}

// Config is the complete configuration of a controller.
type Config struct {
	Name       string
	Listen     string
	TLS        *channel.Certificates // nil: plain TCP
	Named      bool                  // certificates must name the datapath id
	Generation string                // file
	Poll       time.Duration         // 0: never
	Forward    forward.Config        // Run makes a new Key
	Metrics    string                // address; "": nowhere
	Bus        *Bus                  // nil: no agents
	SFlow      *SFlow                // nil: none
	Record     string                // path of recordings; "": none
	RecordSize law.Bytes             // 0: the default
	Laws       []Law                 // in addition to forwarding and polling
	Specs      law.Specs             // laws of this build, for policies

	Version string
	Log     *slog.Logger // nil: none
	Ready   func(address net.Addr)

	beforeDraw func() // for tests: called when the lease is taken, before the generation id is drawn
}

// Schema returns the JSON schema of `kind: Controller`.
func Schema() []byte { return kindController().Schema() }

// kindWith returns kindController for a build that has these laws.
func kindWith(specs law.Specs) *config.Kind[File] {
	k := *kindController()
	k.Check = func(c *config.Checker, f *File) {
		check(c, f)
		checkLaws(c, f, specs)
	}
	return &k
}

// Load reads and checks a file, in a build that has these laws. Its faults are config.Errors.
func Load(path string, specs law.Specs) (*Config, error) {
	f, err := kindWith(specs).Load(path)
	if err != nil {
		return nil, err
	}
	c := f.config()
	c.Specs = specs
	c.Laws, err = f.laws(specs)
	return c, err
}

// FromOptions makes a configuration from options instead of a file. No option is for laws.
func FromOptions(t *config.Tree) (*Config, error) {
	f, err := kindController().FromTree("", t)
	if err != nil {
		return nil, err
	}
	return f.config(), nil
}

func (f *File) config() *Config {
	c := &Config{
		Name: f.Name, Listen: f.Listen, Generation: f.Generation, Poll: time.Duration(f.Poll), Metrics: f.Metrics.Listen, Forward: forward.Default(),
		Record: f.Record, RecordSize: f.RecordSize,
	}
	if c.Generation == "" {
		c.Generation = generationDir + "/controller-" + f.Name + ".generation"
	}
	if f.TLS != nil {
		c.TLS = &channel.Certificates{CA: f.TLS.CA, Certificate: f.TLS.Certificate, Key: f.TLS.Key}
		c.Named = f.TLS.Named
	}
	c.Bus = f.Bus.config(c.Generation)
	c.SFlow = f.SFlow.config()
	r := f.Rates
	c.Forward.Rates = forward.Rates{Probe: r.Probe, ARP: r.ARP, Copy: r.Copy, Source: r.Source, Miss: r.Miss}
	l := f.Limits
	c.Forward.SwitchesMax, c.Forward.HostsMax, c.Forward.HostsPerPort = l.Switches, l.Hosts, l.HostsPerPort
	c.Forward.PinsMax, c.Forward.FloodsPerSecond, c.Forward.FloodBurst = l.Pins, l.Floods, 2*l.Floods
	return c
}
