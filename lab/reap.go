package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// reapLimit is how long the kernel may take to take the namespaces of a lab apart.
const reapLimit = 10 * time.Second

// removeNamespaces removes the nodes' namespaces and waits until the kernel has taken them apart,
// which it does on its own time: what comes next should find the machine quiet. busy are those
// that processes keep alive.
//
// The kernel takes namespaces apart in batches, one after the other, and when it starts on one it
// tells all that have a number for it. So the management namespace, the last to go, gives numbers
// to the others and listens: first for the start of all, then for the start of the controller's,
// which is dropped only then. That start is the end of the others.
func (c *claim) removeNamespaces(nodes, busy []string) error {
	observer, err := c.observe(nodes)
	if err != nil {
		return err
	}
	first := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == mgmtNode || n == controllerNode })
	for _, batch := range [][]string{first, {controllerNode}} {
		for _, n := range batch {
			if e := c.removeNamespace(n); e != nil {
				err = errors.Join(err, e)
			}
		}
		if observer != nil && err == nil {
			batch = slices.DeleteFunc(batch, func(n string) bool { return slices.Contains(busy, n) })
			err = observer.await(batch)
		}
	}
	if observer != nil {
		observer.close()
	}
	return errors.Join(err, c.removeNamespace(mgmtNode))
}

func (c *claim) removeNamespace(node string) error {
	return removeNamespace(c.Namespaces[node], c.Token)
}

// observer listens in the management namespace for the end of others.
type observer struct {
	w    *worker
	sock *nl.NetlinkSocket
	ids  map[int]string // number -> node
}

// observe gives numbers to the namespaces of the nodes that exist. Without a management namespace
// of ours (killed before it was made) there is no observer, and nobody waits.
func (c *claim) observe(nodes []string) (*observer, error) {
	path := filepath.Join(netnsDir, c.Namespaces[mgmtNode])
	if !isNamespace(path) {
		return nil, nil
	}
	if ours, err := carriesToken(path, c.Token); err != nil || !ours {
		return nil, err
	}
	w, err := startWorker(func() error {
		ns, err := os.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		return enterNamespace(ns)
	})
	if err != nil {
		return nil, err
	}
	o := &observer{w: w, ids: map[int]string{}}
	err = w.do(func() error {
		if o.sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NSID); err != nil {
			return err
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for _, n := range nodes {
			if n == mgmtNode {
				continue
			}
			if err := o.number(h, n, filepath.Join(netnsDir, c.Namespaces[n])); err != nil {
				return fmt.Errorf("watch namespace of %s: %w", n, err)
			}
		}
		return nil
	})
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// number gives the namespace at path a number here; one with a link to here has one already.
func (o *observer) number(h *netlink.Handle, node, path string) error {
	if !isNamespace(path) {
		return nil
	}
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := h.SetNetNsIdByFd(int(ns.Fd()), -1); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	id, err := h.GetNetNsIdByFd(int(ns.Fd()))
	if err != nil {
		return err
	}
	o.ids[id] = node
	return nil
}

// await returns when the kernel has begun to take all of the nodes' namespaces apart.
func (o *observer) await(nodes []string) error {
	deadline := time.Now().Add(reapLimit)
	waiting := func() (list []string) {
		for _, n := range o.ids {
			if slices.Contains(nodes, n) {
				list = append(list, n)
			}
		}
		return list
	}
	for len(waiting()) > 0 {
		rest := time.Until(deadline)
		if rest <= 0 {
			break
		}
		timeout := unix.NsecToTimeval(rest.Nanoseconds())
		if err := o.sock.SetReceiveTimeout(&timeout); err != nil {
			return err
		}
		msgs, _, err := o.sock.Receive()
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("wait for namespaces to end: %w", err)
		}
		for _, m := range msgs {
			if m.Header.Type != unix.RTM_DELNSID {
				continue
			}
			if id, ok := nsid(m.Data); ok {
				delete(o.ids, id)
			}
		}
	}
	if list := waiting(); len(list) > 0 {
		slices.Sort(list)
		return fmt.Errorf("namespaces of %s live on after %v: a socket or a process still holds them", strings.Join(list, ", "), reapLimit)
	}
	return nil
}

// nsid reads the number out of a message about it.
func nsid(data []byte) (int, bool) {
	const header = 4 // struct rtgenmsg, padded
	if len(data) < header {
		return 0, false
	}
	attrs, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return 0, false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.NETNSA_NSID && len(a.Value) >= 4 {
			return int(int32(nl.NativeEndian().Uint32(a.Value))), true
		}
	}
	return 0, false
}

func (o *observer) close() {
	if o.sock != nil {
		o.sock.Close()
	}
	o.w.stop()
}
