package switchd

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/law"
)

// shaper holds what a port's queue discipline reports about the port. 0: not reported.
type shaper struct {
	Kind   string
	Rate   law.Rate
	Buffer law.Bytes
	Bucket uint32 // of a tbf, in the kernel's ticks
}

// qdisc is a queue discipline in the kernel's list.
type qdisc struct {
	kind           string
	handle, parent uint32
	options        []byte
}

// listQdiscs lists the queue disciplines of all devices, by ifindex.
func listQdiscs() (map[int][]qdisc, error) {
	messages, err := attach.Again(netlink.ErrDumpInterrupted, func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	})
	if err != nil {
		return nil, fmt.Errorf("list queue disciplines: %w", err)
	}
	out := map[int][]qdisc{}
	for _, m := range messages {
		head := nl.DeserializeTcMsg(m)
		attrs, err := nl.ParseRouteAttr(m[head.Len():])
		if err != nil {
			return nil, fmt.Errorf("list queue disciplines: %w", err)
		}
		q := qdisc{handle: head.Handle, parent: head.Parent}
		for _, a := range attrs {
			switch a.Attr.Type {
			case nl.TCA_KIND:
				q.kind = nl.BytesToString(a.Value)
			case nl.TCA_OPTIONS:
				q.options = a.Value
			}
		}
		out[int(head.Ifindex)] = append(out[int(head.Ifindex)], q)
	}
	return out, nil
}

// rootOf returns the root queue discipline of a device. Handle 0 means that nobody configured it: it is the kernel's
// default.
func rootOf(list []qdisc) *qdisc {
	for i := range list {
		if list[i].parent == netlink.HANDLE_ROOT {
			return &list[i]
		}
	}
	return &qdisc{kind: "noqueue"}
}

// readShaper reads what the root queue discipline of a device reports.
func readShaper(dev *netlink.LinkAttrs, list []qdisc) (shaper, error) {
	root := rootOf(list)
	s := shaper{Kind: root.kind}
	switch root.kind {
	case "tbf":
		return s, s.tbf(root.options)
	case "htb":
		return s, s.htb(dev, *root, list)
	case "bfifo", "pfifo":
		s.Buffer = fifoLimit(dev, *root)
	}
	return s, nil
}

func (s *shaper) tbf(options []byte) error {
	attrs, err := nl.ParseRouteAttr(options)
	if err != nil {
		return fmt.Errorf("options of tbf: %w", err)
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == nl.TCA_TBF_PARMS && len(a.Value) >= nl.SizeofTcTbfQopt:
			opt := nl.DeserializeTcTbfQopt(a.Value)
			s.Buffer, s.Bucket = law.Bytes(opt.Limit), opt.Buffer
			if s.Rate == 0 {
				s.Rate = law.Rate(opt.Rate.Rate) * 8
			}
		case a.Attr.Type == nl.TCA_TBF_RATE64 && len(a.Value) >= 8: // over 34 Gbit/s
			s.Rate = law.Rate(binary.NativeEndian.Uint64(a.Value)) * 8
		}
	}
	return nil
}

// htb reads the default class: its rate is the ceiling of its topmost parent, its buffer that of its leaf.
func (s *shaper) htb(dev *netlink.LinkAttrs, root qdisc, list []qdisc) error {
	attrs, err := nl.ParseRouteAttr(root.options)
	if err != nil {
		return fmt.Errorf("options of htb: %w", err)
	}
	leaf := htbDefault(root, attrs)
	classes, err := attach.Again(netlink.ErrDumpInterrupted, func() ([]netlink.Class, error) {
		return netlink.ClassList(&netlink.GenericLink{LinkAttrs: *dev}, 0)
	})
	if err != nil {
		return fmt.Errorf("list classes of htb: %w", err)
	}
	byHandle := map[uint32]*netlink.HtbClass{}
	for _, c := range classes {
		if h, ok := c.(*netlink.HtbClass); ok {
			byHandle[h.Handle] = h
		}
	}
	const deepest = 8 // TC_HTB_MAXDEPTH
	top := byHandle[leaf]
	for range deepest {
		if top == nil || top.Parent == netlink.HANDLE_ROOT {
			break
		}
		top = byHandle[top.Parent]
	}
	if top == nil {
		return nil // unclassified traffic is not shaped
	}
	s.Rate = law.Rate(top.Ceil) * 8
	s.Buffer = fifoLimit(dev, qdisc{kind: "pfifo"}) // the kernel does not list the leaf that it makes by itself
	for _, q := range list {
		if q.parent == leaf {
			s.Buffer = fifoLimit(dev, q)
		}
	}
	return nil
}

// htbDefault returns the handle of the default class.
func htbDefault(root qdisc, attrs []syscall.NetlinkRouteAttr) uint32 {
	for _, a := range attrs {
		if a.Attr.Type == nl.TCA_HTB_INIT && len(a.Value) >= nl.SizeofTcHtbGlob {
			return root.handle&0xffff0000 | nl.DeserializeTcHtbGlob(a.Value).Defcls
		}
	}
	return 0
}

// fifoLimit returns the capacity of a FIFO in bytes; 0 for other queue disciplines. One that counts packets is assumed
// to be full of packets of the largest size.
func fifoLimit(dev *netlink.LinkAttrs, q qdisc) law.Bytes {
	limit := law.Bytes(dev.TxQLen)
	if len(q.options) >= 4 {
		limit = law.Bytes(binary.NativeEndian.Uint32(q.options))
	}
	switch q.kind {
	case "bfifo":
		return limit
	case "pfifo":
		const ethernet = 14
		return limit * law.Bytes(dev.MTU+ethernet)
	}
	return 0
}
