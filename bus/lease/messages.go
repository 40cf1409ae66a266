package lease

// Event is something that arrived.
type Event interface{ event() }

// The events.
type (
	// Tick reports that time has passed; at least every 50 ms.
	Tick struct{}
	// Heard is another controller's heartbeat, for one bucket. Bucket -1: it holds none.
	Heard struct {
		Bucket int
		Holder Holder
		Term   uint64
	}
	// Reported is the highest term that an agent of the bucket has seen.
	Reported struct {
		Bucket int
		Holder Holder
		Term   uint64
	}
	// Read is the store's record, asked for or changed by another.
	Read struct {
		Bucket int
		Record Record
	}
	// Stored answers Store: the term is durable, or cannot be made so.
	Stored struct {
		Bucket int
		Term   uint64
	}
	// Written answers Write. OK: the record is ours, at that revision.
	Written struct {
		Bucket   int
		Term     uint64
		OK       bool
		Revision uint64
	}
	// Announced answers Announce.
	Announced struct {
		Bucket int
		Term   uint64
	}
)

func (Tick) event()      {}
func (Heard) event()     {}
func (Reported) event()  {}
func (Read) event()      {}
func (Stored) event()    {}
func (Written) event()   {}
func (Announced) event() {}

// Order is something to do.
type Order interface{ order() }

// The orders.
type (
	// Beacon asks to send a heartbeat with the buckets of this controller.
	Beacon struct{ Held []Held }
	// Ask asks to read the bucket's record. There may be no answer.
	Ask struct{ Bucket int }
	// Store asks to make the term durable on this machine, and to answer Stored.
	Store struct {
		Bucket int
		Term   uint64
	}
	// Write asks to replace the record if it still has Revision. The answer is Written; there may be none.
	Write struct {
		Bucket   int
		Term     uint64
		Revision uint64
	}
	// Announce asks to send the term to all agents of the bucket, and to answer Announced.
	Announce struct {
		Bucket int
		Term   uint64
	}
	// Began reports that from now on the controller may command the bucket's agents.
	Began struct {
		Bucket int
		Term   uint64
	}
	// Ended reports that the controller must not command them any more.
	Ended struct {
		Bucket int
		Term   uint64
		Why    string
	}
)

func (Beacon) order()   {}
func (Ask) order()      {}
func (Store) order()    {}
func (Write) order()    {}
func (Announce) order() {}
func (Began) order()    {}
func (Ended) order()    {}

// Held is a bucket that a controller commands.
type Held struct {
	Bucket int
	Term   uint64
}
