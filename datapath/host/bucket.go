package host

// The arithmetic of core/bucket.h, for the classes that this package makes. The test vectors of bucket.h check that both
// give the same.
const (
	bucketRateMin  = 64_000
	bucketRateMax  = 1_000_000_000_000
	bucketFrame    = 1600
	bucketLimitMin = 70_000
)

func bucketRate(bps uint64) uint64 { return min(max(bps, bucketRateMin), bucketRateMax) }

// bucketBytes returns the bytes that a rate carries in ns, within limits.
func bucketBytes(bps, ns uint64, least, most uint32) uint32 {
	bytes := bucketRate(bps) / 8000 * ns / 1_000_000
	return uint32(min(max(bytes, uint64(least)), uint64(most)))
}

func bucketBurst(bps uint64) uint32 { return bucketBytes(bps, 10_000_000, 2*bucketFrame, 1<<20) }

func bucketQuantum(bps uint64) uint32 { return bucketBytes(bps, 1_000_000, bucketFrame, 60000) }

func bucketLimit(bps uint64) uint32 { return bucketBytes(bps, 50_000_000, bucketLimitMin, 8<<20) }

// bucketChanges reports whether a class must change its rate: by more than 2 %. has 0: there is no class yet.
func bucketChanges(has, wants uint64) bool {
	wants = bucketRate(wants)
	return has == 0 || (max(wants, has)-min(wants, has))*50 > has
}
