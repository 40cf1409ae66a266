package switchd

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"
)

// begunHandler sends the log record of a switch that has begun to a channel.
type begunHandler struct{ begun chan<- struct{} }

func logBegun(begun chan<- struct{}) *slog.Logger { return slog.New(begunHandler{begun}) }

func (h begunHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h begunHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h begunHandler) WithGroup(string) slog.Handler            { return h }
func (h begunHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "begun" {
		h.begun <- struct{}{}
	}
	return nil
}

// ownBPFFS gives the calling thread a mount namespace with a BPF file system of its own, independent of the machine's
// mounts.
func ownBPFFS() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "")
}
