package bus

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// storeEvery is how often the server looks whether its store works.
const storeEvery = 2 * time.Second

// keepStore begins the store again after a full disk. NATS ends it then until its next start, and one more server that is lost later
// would end the quorum of three.
func (s *Server) keepStore(o *server.Options) {
	every := time.NewTicker(storeEvery)
	defer every.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-every.C:
		}
		if s.nats.JetStreamEnabled() || !s.nats.Running() {
			continue
		}
		err := s.nats.EnableJetStream(&server.JetStreamConfig{
			StoreDir: o.StoreDir, SyncInterval: o.SyncInterval, SyncAlways: o.SyncAlways, MaxMemory: o.JetStreamMaxMemory, MaxStore: o.JetStreamMaxStore, Strict: true,
		})
		if err != nil {
			s.log.Error("the store of the bus does not work: make room on its disk", "store", o.StoreDir, "error", err)
			continue
		}
		s.log.Warn("the store of the bus works again", "store", o.StoreDir)
	}
}
