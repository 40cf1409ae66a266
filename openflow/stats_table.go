package openflow

// TableStats are a table's counters (ofp_table_stats, specification 7.3.5.4).
type TableStats struct {
	TableID      TableID `json:"table_id"`
	ActiveCount  uint32  `json:"active_count"` // entries
	LookupCount  uint64  `json:"lookup_count"` // packets
	MatchedCount uint64  `json:"matched_count"`
}

// TableStatsReply has the counters of all tables.
type TableStatsReply []TableStats

const tableStatsLen = 24

// MultipartType returns MultipartTable.
func (TableStatsReply) MultipartType() MultipartType { return MultipartTable }

func (r TableStatsReply) append(b []byte, reply bool) ([]byte, error) {
	for i := range r {
		s := &r[i]
		b = append(b, byte(s.TableID), 0, 0, 0)
		b = be.AppendUint32(b, s.ActiveCount)
		b = be.AppendUint64(b, s.LookupCount)
		b = be.AppendUint64(b, s.MatchedCount)
	}
	return b, onlyReply(MultipartTable, reply)
}

func (c *cursor) tableStats() TableStatsReply {
	r := make(TableStatsReply, 0, len(c.b)/tableStatsLen)
	for c.more() {
		s := TableStats{TableID: TableID(c.u8("table_id"))}
		c.pad(3)
		s.ActiveCount = c.u32("active_count")
		s.LookupCount = c.u64("lookup_count")
		s.MatchedCount = c.u64("matched_count")
		r = append(r, s)
	}
	return r
}
