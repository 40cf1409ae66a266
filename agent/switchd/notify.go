package switchd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifier tells systemd how the process does (sd_notify(3)). Without systemd it does nothing.
type notifier struct {
	title    string // of the law
	log      *slog.Logger
	watchdog time.Duration // between two signs of life; 0: nobody waits for any
	alive    time.Time     // the last one
	status   string
}

func newNotifier(log *slog.Logger, title string) *notifier {
	n := &notifier{log: log, title: title}
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("cannot tell what systemd's watchdog expects", "error", err)
	}
	n.watchdog = within / 3
	return n
}

func (n *notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("cannot notify systemd", "error", err)
	}
}

func (n *notifier) ready(ports int) {
	n.status = n.statusLine(ports)
	n.send(daemon.SdNotifyReady + "\nSTATUS=" + n.status)
}

// beat is a sign of life, and what is new about the ports.
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

// reloadMost is how long a reload may take before the watchdog takes it for hung, and who asked for it gives up.
// Loading the programs of a thousand ports takes minutes on a busy machine.
const reloadMost = 5 * time.Minute

// reloading begins a reload, and gives signs of life until done is called.
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

// reloaded ends a reload, which systemd waits for however it went.
func (n *notifier) reloaded(ports int, err error) {
	n.status = n.statusLine(ports)
	line := n.status
	if err != nil {
		line += "; last reload refused"
	}
	n.send(daemon.SdNotifyReady + "\nSTATUS=" + line)
}

func (n *notifier) stopping() { n.send(daemon.SdNotifyStopping + "\nSTATUS=letting windows go") }

func (n *notifier) statusLine(ports int) string {
	if ports == 1 {
		return n.title + " on 1 port"
	}
	return fmt.Sprintf("%s on %d ports", n.title, ports)
}
