// Package doctor reports to an operator, before anything is changed, what Weir can and cannot do on a machine, and what to do
// about it. Gather reads the machine and changes nothing. Check makes the findings from the facts and reads nothing, so that
// every finding can be tested for machines that the developers do not have.
package doctor

import (
	"time"

	"weir/datapath/attach"
)

// Facts describes a machine. Facts that could not be read are zero, and listed in Unseen.
type Facts struct {
	Host    Host
	Process Process
	Kernel  Kernel
	Devices []Device // of the network namespace, by name
	// DevicesLeft counts devices of the namespace that were not looked at: there are too many.
	DevicesLeft int
	Bypass      Bypass
	TCP         TCP
	Memory      Memory
	Switches    []Switch
	Unseen      []Unseen
}

// Host names the machine.
type Host struct {
	Name     string `json:"name"`
	Release  string `json:"release"` // of the kernel: 6.18.5
	Arch     string `json:"arch"`
	CPUs     int    `json:"cpus"`
	Realtime bool   `json:"-"` // PREEMPT_RT
	// Namespaces counts the named network namespaces (ip netns).
	Namespaces int `json:"-"`
}

// Process is what this process may do, which `weir switch` started the same way may too.
type Process struct {
	Root         bool
	UserNS       bool // in a user namespace of its own, whose root the kernel does not believe
	Capabilities uint64
	Container    string // "docker", "container"; "": none seen
}

// Kernel is what does not belong to a device.
type Kernel struct {
	Features   []attach.Feature
	Rehearsed  bool  // Rehearsal is the verifier's answer
	Rehearsal  error // nil: it takes the switch programs
	BPFFS      string
	BPFDir     bool // /sys/fs/bpf is there to mount it on
	Lockdown   string
	JIT        int // bpf_jit_enable; -1: not known
	JITHarden  int
	Unprivil   int           // unprivileged_bpf_disabled
	BPFStats   int           // bpf_stats_enabled
	Resolution time.Duration // of timers
	Modules    map[string]ModuleState
}

// ModuleState is how a part of the kernel is there.
type ModuleState string

// Built in or loaded; there to be loaded; not there; not to be found out.
const (
	ModuleReady   ModuleState = "ready"
	ModuleOnDisk  ModuleState = "on disk"
	ModuleAbsent  ModuleState = "absent"
	ModuleUnknown ModuleState = "unknown"
)

// Device is one network device.
type Device struct {
	Name, Alias string
	Ifindex     int
	Kind        string // of rtnetlink: "veth", "bridge", "" for hardware
	Driver, Bus string // Bus: 0000:3b:00.0
	Loopback    bool
	NoEthernet  bool // its packets begin with IP or something else: tun, WireGuard, GRE
	Up, Carrier bool
	MTU         int
	SpeedMbit   int // 0: unknown
	TxQueues    int // in use, as far as known
	RxQueues    int
	Addresses   int    // of IP
	Master      string // bridge, bond, VRF, ovs-system
	MasterKind  string
	Tagged      []uint16 // VLANs whose packets leave with a tag, if the master is a bridge that filters VLANs
	Untagged    []uint16 // VLANs whose packets leave without one
	Lower       string   // what a VLAN, tunnel or macvlan stands on, if it is in this namespace
	PeerAway    bool     // its peer or lower device is in another namespace
	Parking     bool     // one of Weir's parking devices
	GSOMax      int      // bytes of a super-packet

	Root     Qdisc
	Verdict  *Verdict // of weir switch; nil: not asked
	Children []string // kinds of the qdiscs below an mq or mqprio

	Offloads map[string]bool // of ethtool; nil: unknown
	XPS      int             // send queues that CPUs are mapped to

	VFs, MaxVFs int
	IsVF        bool
	SwitchID    string // of a switch chip that forwards by itself
	Represents  bool   // a function of the NIC, whose packets pass it only as long as the NIC has no rule

	XDP             *Program
	XDPMode         string
	Ingress, Egress []Program // tcx, in order
	Filters         []Filter  // of clsact and of qdiscs
}

// Qdisc is a device's root queue discipline.
type Qdisc struct {
	Kind    string // "noqueue" where there is none
	Default bool   // the kernel's own choice, which a shaper of Weir's may replace
	Ours    bool   // a shaper of Weir's
	Bursts  uint64 // bytes that a tbf's bucket holds
}

// Verdict is what weir switch would make of the device, by its configuration or the defaults.
type Verdict struct {
	Refusal                                                  string // why it would not; "": it would
	RateBits, ShapeBits, BufferBytes, TargetBytes, PipeBytes uint64
}

// Program is a BPF program somewhere in a packet's way.
type Program struct {
	ID        uint32
	Name      string
	Ours      bool
	Redirects bool // it uses a map for sending packets elsewhere
}

// Filter is a classifier of tc.
type Filter struct {
	Kind    string // bpf, flower, matchall, u32
	Name    string // of a BPF classifier
	Egress  bool
	Root    bool // of the root qdisc, where it chooses a class
	InHW    bool // carried out by the NIC
	SkipsSW bool
}

// Bypass is what moves packets past the hooks of Weir.
type Bypass struct {
	UserDrivers []UserDevice // network hardware that a process drives (DPDK, or a VM has it)
	DPDK        []string     // runtime directories of DPDK processes
	Daemons     []string     // names of programs that forward by themselves
	VhostUser   []string     // sockets
	VDPA        []string
	VhostNet    bool // a VM's device is served by the kernel
	XDPSockets  int  // AF_XDP
	Flowtables  []Flowtable
	EgressHooks []EgressHook
}

// UserDevice is a PCI network device without a kernel network driver.
type UserDevice struct{ Bus, Driver string }

// Flowtable is one of nftables.
type Flowtable struct {
	Table, Name string
	Devices     []string
	Hardware    bool
}

// EgressHook is a chain of nftables that packets pass before they reach tcx at egress.
type EgressHook struct {
	Table, Name string
	Devices     []string
}

// TCP is what the namespace knows of TCP.
type TCP struct {
	Sysctls      map[string]string // "net.ipv4.tcp_ecn"; those that could be read
	MPTCPSockets int
	Signed       int // sockets with TCP-MD5
	SignedAO     int // segments with TCP-AO that were received
	SAs          int // IPsec security associations
	Forwarding   bool
}

// Memory is the machine's, in bytes; 0: not known.
type Memory struct {
	Total, Available uint64
	CgroupLimit      uint64
	CgroupLeft       uint64 // below the nearest limit
	LockedLimit      uint64 // RLIMIT_MEMLOCK
	LockedUnlimited  bool
	Flows            int    // connections that the tables of a switch are for: the file's, or the default
	Tables           uint64 // what they take
}

// Switch is what is pinned of a `weir switch`.
type Switch struct {
	Name    string
	Alive   bool
	Holder  string // who has it, or had it last
	Age     time.Duration
	Ports   []SwitchPort
	Refused string // its tables cannot be read: why
	Other   bool   // because they are another version's
}

// SwitchPort is one port of it.
type SwitchPort struct {
	Name    string
	Program uint32 // of BPF
	Gone    bool
	Local   bool // in this namespace
}

// Names for Unseen. Findings leave out the things that it names.
const (
	seeProcess  = "this process"
	seeKernel   = "the kernel"
	seeBPF      = "what BPF can do"
	seeDevices  = "network devices"
	seePrograms = "programs at devices"
	seeBypass   = "what passes the kernel"
	seeTCP      = "TCP"
	seeMemory   = "memory"
	seeSwitches = "pinned switches"
)

// Unseen is what could not be read.
type Unseen struct {
	What string
	Why  string
	Root bool // root could
}
