package switchd

import (
	"context"
	"log/slog"

	"golang.org/x/sys/unix"
)

// begunHandler tells a channel of the record that a switch has begun.
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

// ownBPFFS gives the caller's thread a mount namespace with a BPF file system of its own, whatever the machine has
// mounted there.
func ownBPFFS() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "")
}
