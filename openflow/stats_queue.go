package openflow

// QueueAll asks for all queues of a port (OFPQ_ALL).
const QueueAll uint32 = 0xffffffff

// QueueStatsRequest asks for a queue's counters (specification 7.3.5.8).
type QueueStatsRequest struct {
	PortNo  PortNo `json:"port_no"`  // or PortAny
	QueueID uint32 `json:"queue_id"` // or QueueAll
}

// QueueStats are a queue's counters (ofp_queue_stats, specification 7.3.5.8).
type QueueStats struct {
	PortNo       PortNo `json:"port_no"`
	QueueID      uint32 `json:"queue_id"`
	TxBytes      uint64 `json:"tx_bytes"`
	TxPackets    uint64 `json:"tx_packets"`
	TxErrors     uint64 `json:"tx_errors"` // packets dropped for a full queue
	DurationSec  uint32 `json:"duration_sec"`
	DurationNsec uint32 `json:"duration_nsec"`
}

// QueueStatsReply gives the counters of queues.
type QueueStatsReply []QueueStats

const queueStatsLen = 40

// MultipartType returns MultipartQueue.
func (QueueStatsRequest) MultipartType() MultipartType { return MultipartQueue }

// MultipartType returns MultipartQueue.
func (QueueStatsReply) MultipartType() MultipartType { return MultipartQueue }

func (r QueueStatsRequest) append(b []byte, reply bool) ([]byte, error) {
	return be.AppendUint32(be.AppendUint32(b, uint32(r.PortNo)), r.QueueID), onlyRequest(MultipartQueue, reply)
}

func (r QueueStatsReply) append(b []byte, reply bool) ([]byte, error) {
	for i := range r {
		s := &r[i]
		b = be.AppendUint32(b, uint32(s.PortNo))
		b = be.AppendUint32(b, s.QueueID)
		b = be.AppendUint64(b, s.TxBytes)
		b = be.AppendUint64(b, s.TxPackets)
		b = be.AppendUint64(b, s.TxErrors)
		b = be.AppendUint32(b, s.DurationSec)
		b = be.AppendUint32(b, s.DurationNsec)
	}
	return b, onlyReply(MultipartQueue, reply)
}

func (c *cursor) queueStats() QueueStatsReply {
	r := make(QueueStatsReply, 0, len(c.b)/queueStatsLen)
	for c.more() {
		r = append(r, QueueStats{
			PortNo:       PortNo(c.u32("port_no")),
			QueueID:      c.u32("queue_id"),
			TxBytes:      c.u64("tx_bytes"),
			TxPackets:    c.u64("tx_packets"),
			TxErrors:     c.u64("tx_errors"),
			DurationSec:  c.u32("duration_sec"),
			DurationNsec: c.u32("duration_nsec"),
		})
	}
	return r
}
