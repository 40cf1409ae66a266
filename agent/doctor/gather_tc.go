package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// qdisc is a queue discipline as the kernel lists it.
type qdisc struct {
	kind           string
	handle, parent uint32
	options        []byte
}

// listQdiscs lists those of all devices at once, by ifindex.
func listQdiscs() (map[int][]qdisc, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL})
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list queue disciplines: %w", err)
	}
	out := map[int][]qdisc{}
	for _, m := range messages {
		if head, q, ok := parseTC(m); ok {
			out[int(head.Ifindex)] = append(out[int(head.Ifindex)], q)
		}
	}
	return out, nil
}

// parseTC reads what qdiscs and filters have in common.
func parseTC(m []byte) (head *nl.TcMsg, q qdisc, ok bool) {
	if len(m) < nl.SizeofTcMsg {
		return nil, q, false
	}
	head = nl.DeserializeTcMsg(m)
	all := attributes(m[nl.SizeofTcMsg:])
	q = qdisc{
		kind: cString(attributeOf(all, nl.TCA_KIND)), handle: head.Handle, parent: head.Parent, options: attributeOf(all, nl.TCA_OPTIONS),
	}
	return head, q, true
}

// bucket is how many bytes the bucket of a tbf holds; 0 of others.
func (q *qdisc) bucket() uint64 {
	all := attributes(q.options)
	parms := attributeOf(all, nl.TCA_TBF_PARMS)
	if q.kind != "tbf" || len(parms) < nl.SizeofTcTbfQopt {
		return 0
	}
	opt := nl.DeserializeTcTbfQopt(parms)
	bytesPerSecond := uint64(opt.Rate.Rate)
	if wide := attributeOf(all, nl.TCA_TBF_RATE64); len(wide) >= 8 { // over 34 Gbit/s
		bytesPerSecond = max(bytesPerSecond, binary.NativeEndian.Uint64(wide))
	}
	const nsPerTick = 64 // PSCHED_SHIFT
	return uint64(float64(opt.Buffer) * nsPerTick / 1e9 * float64(bytesPerSecond))
}

// programReader reads the programs at devices. The same program is often at many.
type programReader struct {
	known           map[uint32]Program
	err, errFilters error // the first
}

// tooOld reports whether an answer means that the kernel has no such thing, or that the device went.
func tooOld(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)
}

func (r *programReader) fill(d *Device, a *netlink.LinkAttrs, list []qdisc) {
	d.Ingress = r.chain(d.Ifindex, ebpf.AttachTCXIngress)
	d.Egress = r.chain(d.Ifindex, ebpf.AttachTCXEgress)
	if x := a.Xdp; x != nil && x.Attached {
		p := r.program(x.ProgId)
		d.XDP = &p
		d.XDPMode = map[uint32]string{1: "in the driver", 2: "generic", 3: "in the NIC", 4: "several"}[x.AttachMode]
	}
	const minIngress, minEgress = 0xfffffff2, 0xfffffff3
	for _, q := range list {
		switch {
		case q.kind == "clsact":
			r.filters(d, minIngress, Filter{})
			r.filters(d, minEgress, Filter{Egress: true})
		case q.kind == "ingress":
			r.filters(d, minIngress, Filter{})
		case q.parent == netlink.HANDLE_ROOT && slices.Contains([]string{"htb", "hfsc", "prio", "drr", "ets", "qfq", "multiq"}, q.kind):
			r.filters(d, q.handle, Filter{Root: true})
		}
	}
}

func (r *programReader) chain(ifindex int, at ebpf.AttachType) (out []Program) {
	found, err := attach.ProgramsAt(ifindex, at)
	if err != nil {
		if !tooOld(err) && r.err == nil {
			r.err = fmt.Errorf("programs at devices: %w", err)
		}
		return nil
	}
	for _, p := range found {
		if len(out) < namesMax {
			out = append(out, r.program(uint32(p.ID)))
		}
	}
	return out
}

func (r *programReader) program(id uint32) Program {
	if p, known := r.known[id]; known {
		return p
	}
	p := Program{ID: id}
	defer func() { r.known[id] = p }()
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		if !tooOld(err) && r.err == nil {
			r.err = fmt.Errorf("program %d: %w", id, err)
		}
		return p
	}
	defer func() { _ = prog.Close() }()
	info, err := prog.Info()
	if err != nil {
		return p
	}
	p.Name, p.Ours = info.Name, strings.HasPrefix(info.Name, "weir_")
	maps, _ := info.MapIDs()
	for i, id := range maps {
		p.Redirects = p.Redirects || i < namesMax && redirects(id)
	}
	return p
}

// redirects reports whether a map is one that packets are sent elsewhere by.
func redirects(id ebpf.MapID) bool {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return false
	}
	defer func() { _ = m.Close() }()
	switch m.Type() {
	case ebpf.DevMap, ebpf.DevMapHash, ebpf.XSKMap:
		return true
	}
	return false
}

// filters lists the classifiers at one parent of a device.
func (r *programReader) filters(d *Device, parent uint32, like Filter) {
	req := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(d.Ifindex), Parent: parent})
	err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER, func(m []byte) bool {
		if _, q, ok := parseTC(m); ok && len(q.options) > 0 { // one without options is the head of a list
			f := like
			f.Kind = q.kind
			f.parse(q.options)
			d.Filters = append(d.Filters, f)
		}
		return len(d.Filters) < filtersMax
	})
	if err != nil && !tooOld(err) && !errors.Is(err, netlink.ErrDumpInterrupted) && r.errFilters == nil {
		r.errFilters = fmt.Errorf("filters of %s: %w", d.Name, err)
	}
}

// Flags of a filter, and where each kind keeps them: TCA_CLS_FLAGS_*, TCA_*_FLAGS.
const (
	flagSkipsSW = 1 << 1
	flagInHW    = 1 << 2
	bpfName     = 7
)

var flagsAttr = map[string]uint16{"bpf": 9, "flower": 22, "matchall": 3, "u32": 11}

func (f *Filter) parse(options []byte) {
	all := attributes(options)
	if at, known := flagsAttr[f.Kind]; known {
		if v := attributeOf(all, at); len(v) >= 4 {
			flags := binary.NativeEndian.Uint32(v)
			f.InHW, f.SkipsSW = flags&flagInHW != 0, flags&flagSkipsSW != 0
		}
	}
	if f.Kind == "bpf" {
		f.Name = cString(attributeOf(all, bpfName))
	}
}
