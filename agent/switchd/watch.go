package switchd

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch signals that devices or their queue disciplines changed, not how: the receiver reads them again. So it does no
// harm if the kernel drops messages under load.
type Watch struct {
	socket  *nl.NetlinkSocket
	changed chan struct{}
}

// NewWatch watches the devices of this network namespace.
func NewWatch() (*Watch, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
	if err != nil {
		return nil, fmt.Errorf("watch the devices: %w", err)
	}
	w := &Watch{s, make(chan struct{}, 1)}
	go w.run()
	return w, nil
}

func (w *Watch) run() {
	for {
		_, _, err := w.socket.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return // closed; after any other error the look every second remains
		}
		select {
		case w.changed <- struct{}{}:
		default: // already signalled
		}
	}
}

// Changed has a value after a change.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Close ends the watch.
func (w *Watch) Close() { w.socket.Close() }
