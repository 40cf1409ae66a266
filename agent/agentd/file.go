package agentd

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"time"

	"weir/bus/inband"
	"weir/config"
	"weir/datapath/telemetry"
	"weir/law"
)

// File is a file of `kind: Agent`, as its author wrote it.
type File struct {
	Kind    string      `json:"kind" jsonschema:"required,enum=Agent" jsonschema_description:"Agent"`
	Version int         `json:"version,omitempty" jsonschema:"enum=1" jsonschema_description:"version of the keys (default: 1)"`
	Name    string      `json:"name,omitempty" jsonschema:"maxLength=63,pattern=^[a-z0-9][a-z0-9-]*$" jsonschema_description:"1 to 63 of a-z, 0-9 and -: the name in the certificate (default: that of the only certificate in bus.keys)"`
	Bus     fileBus     `json:"bus" jsonschema:"required" jsonschema_description:"the message bus"`
	State   string      `json:"state,omitempty" jsonschema_description:"file that keeps the highest term seen (default: /var/lib/weir/agent-NAME.term)"`
	Host    *fileHost   `json:"host,omitempty" jsonschema_description:"role host: carry out grants for the VMs of this hypervisor (default: not)"`
	Switch  *fileSwitch `json:"switch,omitempty" jsonschema_description:"role switch: report what the ports of this switch count (default: not)"`
	Metrics fileMetrics `json:"metrics,omitzero" jsonschema_description:"metrics for Prometheus"`
}

type fileBus struct {
	URLs    []string `json:"urls" jsonschema:"required,minItems=1,maxItems=16" jsonschema_description:"servers of the bus: tls://ADDRESS:PORT"`
	Keys    string   `json:"keys" jsonschema:"required,minLength=1" jsonschema_description:"directory that weir bus enrol made for this agent"`
	Buckets int      `json:"buckets,omitempty" jsonschema:"minimum=1,maximum=1024" jsonschema_description:"number of buckets, the same for all agents and controllers (default: 16)"`
}

type fileHost struct {
	Number    law.Host                  `json:"number" jsonschema:"required,minimum=1,maximum=4294967295" jsonschema_description:"number of this host for laws and policies"`
	Uplink    fileUplink                `json:"uplink" jsonschema:"required" jsonschema_description:"port to the network"`
	Labels    map[string]string         `json:"labels,omitempty" jsonschema_description:"labels that policies select this host by, such as {rack: r1}"`
	Switches  []string                  `json:"switches,omitempty" jsonschema:"maxItems=16" jsonschema_description:"names of the agents of the switches that this host is connected to. Of their ports with this host as peer, guarantees here must fit into the sum. Other switches cannot limit guarantees here (default: none)"`
	Messages  string                    `json:"messages,omitempty" jsonschema:"enum=bus,enum=in-band,enum=ip-143,enum=ip-id" jsonschema_description:"in-band: grants come in Ethernet frames to the uplink, with the key frames.key in bus.keys; ip-143: in IP packets of that protocol; ip-id: marks, in their identification. All else comes by the bus (default: bus)"`
	PauseZero bool                      `json:"pause_zero,omitempty" jsonschema_description:"true: a pause writes a window of 0, and the sender then waits for its persist timer. false: the least window (default: false)"`
	Laws      map[string]map[string]any `json:"laws,omitempty" jsonschema:"maxProperties=1" jsonschema_description:"law whose half at hosts runs here: its name, with the parameters that it has at the controller (default: none)"`
	Peers     []filePeer                `json:"peers,omitempty" jsonschema:"maxItems=4096" jsonschema_description:"for a law whose hosts return marks to one another: the other hosts. Marks of other agents have no effect (default: none)"`
	Deadlines *fileDeadlines            `json:"deadlines,omitempty" jsonschema_description:"programs of the VMs can declare deadlines (default: they cannot)"`
	VMs       []fileVM                  `json:"vms,omitempty" jsonschema:"maxItems=4096" jsonschema_description:"VMs of this host"`
}

type fileDeadlines struct {
	Sockets  string    `json:"sockets,omitempty" jsonschema:"pattern=^/" jsonschema_description:"directory of the sockets, VM/deadline.sock for each VM, which only this user can enter (default: /run/weir/deadlines/NAME)"`
	Metadata []string  `json:"metadata,omitempty" jsonschema:"minItems=1,maxItems=2" jsonschema_description:"link-local addresses at which VMs declare by HTTP, each by its port: [169.254.169.253], with one of IPv6 such as fe80::a9fe:a9fd in addition (default: at sockets only)"`
	Quotas   string    `json:"quotas,omitempty" jsonschema:"enum=each,enum=none" jsonschema_description:"each: VMs and tenants have the quotas below; none: any VM can take the share of others (default: each)"`
	VM       fileQuota `json:"vm,omitzero" jsonschema_description:"quota of a VM"`
	Tenant   fileQuota `json:"tenant,omitzero" jsonschema_description:"quota of the VMs of this host with the same label tenant, together"`
}

type fileQuota struct {
	Rate   float64  `json:"rate,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"declarations a second (default: 500; of a tenant 2000)"`
	Live   int      `json:"live,omitempty" jsonschema:"minimum=1,maximum=65536" jsonschema_description:"deadlines that are ahead (default: 256; of a tenant 1024)"`
	Demand law.Rate `json:"demand,omitempty" jsonschema_description:"sum of bytes / within_ms of the deadlines that are ahead (default: that of uplink.rate, or no limit)"`
}

type fileUplink struct {
	Port string   `json:"port" jsonschema:"required,minLength=1,maxLength=15" jsonschema_description:"name of its device"`
	Rate law.Rate `json:"rate,omitempty" jsonschema_description:"its rate, up to 1000Gbit: an HTB there then limits VMs with rate grants (default: rate grants are refused)"`
}

type filePeer struct {
	Agent     string   `json:"agent" jsonschema:"required,maxLength=63,pattern=^[a-z0-9][a-z0-9-]*$" jsonschema_description:"name in the certificate of the other host's agent"`
	Addresses []string `json:"addresses" jsonschema:"required,minItems=1,maxItems=4096" jsonschema_description:"what the VMs there send from: addresses or prefixes; the longest one that fits counts"`
}

type fileVM struct {
	VM        law.VM            `json:"vm" jsonschema:"required,minimum=1,maximum=4294967295" jsonschema_description:"number of the VM for laws and policies, unique in the whole system"`
	Name      string            `json:"name,omitempty" jsonschema:"maxLength=63" jsonschema_description:"name for people and policies"`
	Port      string            `json:"port" jsonschema:"required,minLength=1,maxLength=15" jsonschema_description:"name of the hypervisor's device to the VM"`
	MAC       string            `json:"mac" jsonschema:"required" jsonschema_description:"MAC address that the VM sends from, such as 52:54:00:00:00:01"`
	Addresses []string          `json:"addresses" jsonschema:"required,minItems=1,maxItems=16" jsonschema_description:"what the VM may send from: addresses, or prefixes such as fe80::/64"`
	Labels    map[string]string `json:"labels,omitempty" jsonschema_description:"labels that policies select by, such as {tenant: a}"`
}

type fileSwitch struct {
	Number   law.Switch   `json:"number" jsonschema:"required,minimum=1" jsonschema_description:"number of this switch for laws and policies; an OpenFlow switch's is its datapath id"`
	Interval law.Duration `json:"interval,omitempty" jsonschema_description:"time between two reports (T), 1ms to 10s (default: 5ms)"`
	Idle     law.Duration `json:"idle,omitempty" jsonschema_description:"a flow without data for so long is idle; more than the round-trip time, up to 1h (default: 20ms)"`
	Signals  []string     `json:"signals,omitempty" jsonschema:"maxItems=3" jsonschema_description:"what is counted for each packet in addition to the queue: marks, arrivals, progress of flows (default: marks and arrivals)"`
	Ports    []filePort   `json:"ports" jsonschema:"required,minItems=1,maxItems=1024" jsonschema_description:"ports to report about"`
	Sources  []fileSource `json:"sources,omitempty" jsonschema:"maxItems=16384" jsonschema_description:"addresses of VMs, so that marks are counted by VM"`
	Laws     string       `json:"laws,omitempty" jsonschema:"enum=policy" jsonschema_description:"policy: this process runs at the ports the laws that policies choose (default: those of file, if it is given)"`
	File     string       `json:"file,omitempty" jsonschema_description:"file of kind: Switch whose laws this process runs at the ports, too (default: none)"`
}

type filePort struct {
	Port   string            `json:"port" jsonschema:"required,minLength=1,maxLength=15" jsonschema_description:"name of its device"`
	Number uint32            `json:"number" jsonschema:"required,minimum=1,maximum=4294967295" jsonschema_description:"number of the port for laws, unique at this switch"`
	Rate   law.Rate          `json:"rate,omitempty" jsonschema_description:"rate of the port for laws (default: that of its tbf or htb)"`
	Buffer law.Bytes         `json:"buffer,omitempty" jsonschema_description:"buffer of the port for laws, below 4.29GB (default: that of its tbf or htb)"`
	RTT    law.Duration      `json:"rtt,omitempty" jsonschema_description:"round-trip time of flows with an empty queue, for the laws of policies, up to 1s (default: 250us)"`
	Peer   string            `json:"peer,omitempty" jsonschema:"maxLength=63,pattern=^[a-z0-9][a-z0-9-]*$" jsonschema_description:"name of the agent of the host that the port leads to. Guarantees there must fit into the port, if the host names this agent in host.switches (default: none)"`
	Labels map[string]string `json:"labels,omitempty" jsonschema_description:"labels that policies select by, such as {rack: r1}"`
}

type fileSource struct {
	VM        law.VM   `json:"vm" jsonschema:"required,minimum=1,maximum=4294967295" jsonschema_description:"number of the VM"`
	Addresses []string `json:"addresses" jsonschema:"required,minItems=1,maxItems=16" jsonschema_description:"addresses that it sends from"`
}

type fileMetrics struct {
	Listen string `json:"listen" jsonschema_description:"address and port to serve on; an empty string: none (default: 127.0.0.1:9189)"`
}

const (
	defaultMetrics  = "127.0.0.1:9189" // next to a controller's 9188
	defaultBuckets  = 16
	defaultInterval = 5 * time.Millisecond
	stateDir        = "/var/lib/weir"
	noQuotas        = "none"
)

// kindAgent is `kind: Agent`. Its limits allow 4096 VMs with all their keys.
var kindAgent = sync.OnceValue(func() *config.Kind[File] {
	return config.NewKind("Agent", config.Version{Newest: 1}, config.Limits{Bytes: 16 << 20, Nodes: 500_000}, defaultFile, check)
})

func defaultFile() *File {
	return &File{Bus: fileBus{Buckets: defaultBuckets}, Metrics: fileMetrics{Listen: defaultMetrics}}
}

// Schema returns the JSON schema of `kind: Agent`.
func Schema() []byte { return kindAgent().Schema() }

// Load reads and checks a file. Its faults are config.Errors.
func Load(path string) (*Config, error) {
	f, err := kindAgent().Load(path)
	if err != nil {
		return nil, err
	}
	c := f.config()
	c.File = path
	return c, nil
}

// Config is the complete configuration of an agent.
type Config struct {
	Name    string // "": that of the certificate
	File    string // from which it was read
	Bus     Bus
	State   string  // file; "": stateDir
	Host    *Host   // nil: not this role
	Switch  *Switch // nil: not this role
	Metrics string  // address; "": nowhere

	Options
}

// Bus is where the message bus is.
type Bus struct {
	URLs    []string
	Keys    string // directory
	Buckets int
}

// Host is the configuration of the role host.
type Host struct {
	Number    law.Host
	Uplink    string
	Rate      law.Rate // 0: no limiter
	PauseZero bool
	Frames    inband.Form               // of the frames that grants come in; "": they come by the bus
	Laws      map[string]map[string]any // whose half runs here; at most one
	Peers     []Peer
	Deadlines *Deadlines // nil: programs cannot declare any
	VMs       []VM
	Labels    map[string]string
	Switches  []string // names of the agents of the switches that it is connected to
}

// Peer is another host, with which marks are exchanged.
type Peer struct {
	Agent     string
	Addresses []netip.Prefix // of its VMs
}

// Deadlines is how programs declare deadlines.
type Deadlines struct {
	Dir        string       // of the sockets; "": one of the agent's name
	Metadata   []netip.Addr // at most one of IPv4 and one of IPv6
	NoQuotas   bool
	VM, Tenant Quota
}

// VM is a configured VM.
type VM struct {
	Number    law.VM
	Name      string
	Port      string
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Labels    map[string]string
}

// Switch is the configuration of the role switch.
type Switch struct {
	Number   law.Switch
	Interval time.Duration
	Idle     time.Duration
	Signals  []law.Signal
	Ports    []Port
	Sources  map[netip.Addr]law.VM
	File     string // of kind: Switch; "": none
	ByPolicy bool   // policies choose the laws
}

// Port is a configured port of a switch.
type Port struct {
	Name   string
	Number uint32
	Rate   law.Rate     // 0: that of its queue discipline
	Buffer law.Bytes    // 0: the same
	RTT    law.Duration // 0: the default
	Peer   string       // agent of the host that it leads to
	Labels map[string]string
}

// config makes a complete configuration from a checked file.
func (f *File) config() *Config {
	c := &Config{
		Name: f.Name, State: f.State, Metrics: f.Metrics.Listen,
		Bus: Bus{URLs: f.Bus.URLs, Keys: f.Bus.Keys, Buckets: f.Bus.Buckets},
	}
	if h := f.Host; h != nil {
		c.Host = &Host{Number: h.Number, Uplink: h.Uplink.Port, Rate: h.Uplink.Rate, PauseZero: h.PauseZero, Laws: h.Laws, Labels: h.Labels, Switches: h.Switches}
		if inband.Named(h.Messages) {
			c.Host.Frames = inband.Form(h.Messages)
		}
		for _, from := range h.Peers {
			peer := Peer{Agent: from.Agent}
			for _, text := range from.Addresses {
				p, _ := parseRange(text) // checked before
				peer.Addresses = append(peer.Addresses, p)
			}
			c.Host.Peers = append(c.Host.Peers, peer)
		}
		c.Host.Deadlines = h.Deadlines.config()
		for i := range h.VMs {
			v := &h.VMs[i]
			mac, _ := net.ParseMAC(v.MAC) // checked before
			vm := VM{Number: v.VM, Name: v.Name, Port: v.Port, MAC: mac, Labels: v.Labels}
			for _, text := range v.Addresses {
				p, _ := parseRange(text)
				vm.Addresses = append(vm.Addresses, p)
			}
			c.Host.VMs = append(c.Host.VMs, vm)
		}
	}
	if s := f.Switch; s != nil {
		c.Switch = s.config()
	}
	return c
}

// config returns nil for nil.
func (f *fileDeadlines) config() *Deadlines {
	if f == nil {
		return nil
	}
	quota := func(q fileQuota, rate float64, live int) Quota {
		return Quota{Rate: cmp.Or(q.Rate, rate), Live: cmp.Or(q.Live, live), Demand: q.Demand}
	}
	d := &Deadlines{Dir: f.Sockets, NoQuotas: f.Quotas == noQuotas, VM: quota(f.VM, 500, 256), Tenant: quota(f.Tenant, 2000, 1024)}
	for _, text := range f.Metadata {
		a, _ := netip.ParseAddr(text) // checked before
		d.Metadata = append(d.Metadata, a)
	}
	return d
}

func (s *fileSwitch) config() *Switch {
	c := &Switch{Number: s.Number, Interval: s.Interval.Std(), Idle: s.Idle.Std(), File: s.File, ByPolicy: s.Laws == byPolicy, Sources: map[netip.Addr]law.VM{}}
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	if c.Idle == 0 {
		c.Idle = telemetry.DefaultIdle
	}
	names := s.Signals
	if names == nil {
		names = []string{"marks", "arrivals"}
	}
	for _, name := range names {
		c.Signals = append(c.Signals, signals[name])
	}
	for _, p := range s.Ports {
		c.Ports = append(c.Ports, Port{p.Port, p.Number, p.Rate, p.Buffer, p.RTT, p.Peer, p.Labels})
	}
	for _, from := range s.Sources {
		for _, text := range from.Addresses {
			a, _ := netip.ParseAddr(text)
			c.Sources[a] = from.VM
		}
	}
	return c
}

// signals are what the key of this name allows.
var signals = map[string]law.Signal{"marks": law.Marks, "arrivals": law.Arrivals, "progress": law.Progress}

// parseRange reads an address or a prefix.
func parseRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
