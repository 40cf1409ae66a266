package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// reapLimit is how long we wait for the kernel to destroy the namespaces of a lab. It needs less than a second for
// sixty, and more if other programs' namespaces are queued before them.
const reapLimit = 10 * time.Second

// removeNamespaces removes the nodes' namespaces and waits until the kernel has destroyed them, which it does
// asynchronously, so that the machine is quiet afterwards. busy are those that processes keep alive. left are
// others that remain without a name, for a reason that cannot be seen: a socket that was
// passed on, a mount in another mount namespace, or a connection that was not ended. For a connection the text has the
// reason.
//
// The kernel destroys namespaces in batches, one after the other. When it starts on one it notifies all namespaces
// that have an id for it. So the management namespace, the last to go, assigns ids to the others and listens.
// First it waits for the notifications of all, then for that of the controller's namespace, which is removed only
// then: when the kernel starts on it, the others are destroyed.
func (c *claim) removeNamespaces(nodes, busy []string) (left []string, err error) {
	notEnded := c.endOrphans(nodes)
	observer, err := c.observe(nodes)
	if err != nil {
		return nil, err
	}
	first := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == mgmtNode || n == controllerNode })
	errs := []error{c.removeNamed(first)}
	if observer != nil {
		defer observer.close()
		left, err = observer.await(slices.DeleteFunc(first, func(n string) bool { return slices.Contains(busy, n) }))
		errs = append(errs, err)
	}
	errs = append(errs, c.removeNamespace(controllerNode))
	if observer != nil && len(left) == 0 && errors.Join(errs...) == nil {
		_, err = observer.await([]string{controllerNode}) // a timeout is not an error: the kernel is working on it
		errs = append(errs, err)
	}
	for i, n := range left {
		if err := notEnded[n]; err != nil {
			left[i] = fmt.Sprintf("%s (%v)", n, err)
		}
	}
	return left, errors.Join(append(errs, c.removeNamespace(mgmtNode))...)
}

func (c *claim) removeNamed(nodes []string) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, c.removeNamespace(n))
	}
	return errors.Join(errs...)
}

func (c *claim) removeNamespace(node string) error {
	return removeNamespace(c.Namespaces[node], c.Token)
}

// observer listens in the management namespace for the end of the others.
type observer struct {
	w    *worker
	sock *nl.NetlinkSocket
	ids  map[int]string // id -> node
}

// observe assigns ids to the namespaces of the nodes that exist. Without the lab's management namespace (its
// process was killed before it existed) there is no observer and no waiting.
func (c *claim) observe(nodes []string) (*observer, error) {
	path := filepath.Join(netnsDir, c.Namespaces[mgmtNode])
	if !isNamespace(path) {
		return nil, nil
	}
	if ours, err := carriesToken(path, c.Token); err != nil || !ours {
		return nil, err
	}
	w, err := workerIn(path)
	if err != nil {
		return nil, err
	}
	o := &observer{w: w, ids: map[int]string{}}
	err = w.do(func() error {
		if o.sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NSID); err != nil {
			return err
		}
		// All namespaces may end at once; a notification without room in the buffer is lost.
		if err := unix.SetsockoptInt(o.sock.GetFd(), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, maxNodes*4096); err != nil {
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
			if err := o.number(h, n, filepath.Join(netnsDir, c.Namespaces[n]), c.Token); err != nil {
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

// number assigns an id to the namespace at path; one with a link to this namespace already has one.
func (o *observer) number(h *netlink.Handle, node, path, token string) error {
	if !isNamespace(path) {
		return nil
	}
	if ours, err := carriesToken(path, token); err != nil || !ours {
		return err
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

// await returns when the kernel has started to destroy all of the nodes' namespaces; after reapLimit it returns
// those that are left.
func (o *observer) await(nodes []string) (left []string, err error) {
	deadline := time.Now().Add(reapLimit)
	for {
		left = left[:0]
		for _, n := range o.ids {
			if slices.Contains(nodes, n) {
				left = append(left, n)
			}
		}
		rest := time.Until(deadline)
		if len(left) == 0 || rest <= 0 {
			slices.Sort(left)
			return left, nil
		}
		timeout := unix.NsecToTimeval(rest.Nanoseconds())
		if err := o.sock.SetReceiveTimeout(&timeout); err != nil {
			return nil, err
		}
		msgs, _, err := o.sock.Receive()
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("wait for namespaces to end: %w", err)
		}
		for _, m := range msgs {
			if id, ok := nsid(m.Data); ok && m.Header.Type == unix.RTM_DELNSID {
				delete(o.ids, id)
			}
		}
	}
}

// nsid returns the id in a notification.
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
