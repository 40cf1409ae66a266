package switchd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifier reports the state of the process to systemd (sd_notify(3)). Without systemd it does nothing.
type notifier struct {
	title    string // of the law
	log      *slog.Logger
	watchdog time.Duration // interval of watchdog messages; 0: no watchdog
	alive    time.Time     // when the last one was sent
	status   string
	off      bool // the agent that runs this switch reports for the process
}

func newNotifier(log *slog.Logger, title string) *notifier {
	n := &notifier{log: log, title: title}
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("cannot read the watchdog interval from systemd", "error", err)
	}
	n.watchdog = within / 3
	return n
}

func (n *notifier) send(state string) {
	if n.off {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("cannot notify systemd", "error", err)
	}
}

func (n *notifier) ready(ports int) {
	n.status = n.statusLine(ports)
	n.send(daemon.SdNotifyReady + "\nSTATUS=" + n.status)
}

// heartbeat resets the watchdog, and reports a changed number of ports.
func (n *notifier) heartbeat(ports int) {
	if n.watchdog > 0 && time.Since(n.alive) >= n.watchdog {
		n.alive = time.Now()
		n.send(daemon.SdNotifyWatchdog)
	}
	if line := n.statusLine(ports); line != n.status && n.status != "" {
		n.status = line
		n.send("STATUS=" + line)
	}
}

// reloadMost is how long a reload may take. After that the watchdog ends the process, and Reload gives up. Loading the
// programs of a thousand ports takes minutes on a busy machine.
const reloadMost = 5 * time.Minute

// reloading begins a reload, and resets the watchdog until done is called.
func (n *notifier) reloading() (done func()) {
	n.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	if n.watchdog == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadMost)
	go func() {
		again := time.NewTicker(n.watchdog)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				n.send(daemon.SdNotifyWatchdog)
			}
		}
	}()
	return cancel
}

// reloaded reports the end of a reload, which systemd waits for even if the reload failed.
func (n *notifier) reloaded(ports int, err error) {
	n.status = n.statusLine(ports)
	line := n.status
	if err != nil {
		line += "; last reload refused"
	}
	n.send(daemon.SdNotifyReady + "\nSTATUS=" + line)
}

func (n *notifier) stopping() { n.send(daemon.SdNotifyStopping + "\nSTATUS=releasing windows") }

func (n *notifier) statusLine(ports int) string {
	if ports == 1 {
		return n.title + " on 1 port"
	}
	return fmt.Sprintf("%s on %d ports", n.title, ports)
}
