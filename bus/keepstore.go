package bus

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

const (
	// storeEvery is how often the server looks whether its store works. NATS says that it does not as soon as it begins to end it, which
	// takes two seconds and more. So the store begins again after storeLooks such looks in a row.
	storeEvery = time.Second
	storeLooks = 5
	// storeRoom is how many bytes the disk must have for the store to begin again. NATS panics if the disk is full while it begins:
	// it ends a store whose cluster does not exist yet (disableJetStream in nats-server 2.15).
	storeRoom = 4 << 20
)

// keepStore begins the store again after a full disk. NATS ends it then until its next start, and one more server that is lost later
// would end the quorum of three.
func (s *Server) keepStore(o *server.Options) {
	every := time.NewTicker(storeEvery)
	defer every.Stop()
	for off := 0; ; {
		select {
		case <-s.stop:
			return
		case <-every.C:
		}
		off++
		if s.nats.JetStreamEnabled() || !s.nats.Running() {
			off = 0
		}
		if off < storeLooks {
			continue
		}
		if room, err := roomAt(o.StoreDir); err != nil || room < storeRoom {
			s.log.Error("the store of the bus does not work: make room on its disk", "store", o.StoreDir, "bytes", room, "want", storeRoom, "error", err)
			continue
		}
		err := s.nats.EnableJetStream(&server.JetStreamConfig{
			StoreDir: o.StoreDir, SyncInterval: o.SyncInterval, SyncAlways: o.SyncAlways, MaxMemory: o.JetStreamMaxMemory, MaxStore: o.JetStreamMaxStore, Strict: true,
		})
		if err != nil {
			s.log.Error("the store of the bus does not begin again", "store", o.StoreDir, "error", err)
			continue
		}
		s.log.Warn("the store of the bus works again", "store", o.StoreDir)
	}
}

// roomAt returns how many bytes the file system of a directory has left for this user.
func roomAt(dir string) (bytes uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
