//go:build cgo

package corevec

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#include "events.h"
#include "credit_events.h"

static int corevec_slots(void *e) { return slots_run(e); }
static int corevec_release(void *e) { return release_run(e); }
static int corevec_groups(void *e) { return groups_run(e); }
static int corevec_edge(void *e) { return edge_run(e); }
static int corevec_credit(void *e) { return credit_run(e); }
static int corevec_grant(void *e) { return grant_run(e); }
static int corevec_bucket(void *e) { return bucket_run(e); }
static int corevec_arrivals(void *e) { return arrivals_run(e); }
static int corevec_repair(void *e) { return repair_run(e); }
*/
import "C"

import (
	"errors"
	"unsafe"

	_ "weir/datapath/core" // a change of a header rebuilds this package
	"weir/datapath/internal/coretest"
)

// Run runs one event. value is a pointer to one of coretest's generated structs of events, which have the
// layout of events.h.
func Run(value any) error {
	unknown := C.int(1)
	switch e := value.(type) {
	case *coretest.CoreSlotsEvent:
		unknown = C.corevec_slots(unsafe.Pointer(e))
	case *coretest.CoreReleaseEvent:
		unknown = C.corevec_release(unsafe.Pointer(e))
	case *coretest.CoreGroupsEvent:
		unknown = C.corevec_groups(unsafe.Pointer(e))
	case *coretest.CoreEdgeEvent:
		unknown = C.corevec_edge(unsafe.Pointer(e))
	case *coretest.CoreCreditEvent:
		unknown = C.corevec_credit(unsafe.Pointer(e))
	case *coretest.CoreGrantEvent:
		unknown = C.corevec_grant(unsafe.Pointer(e))
	case *coretest.CoreBucketEvent:
		unknown = C.corevec_bucket(unsafe.Pointer(e))
	case *coretest.CoreArrivalsEvent:
		unknown = C.corevec_arrivals(unsafe.Pointer(e))
	case *coretest.CoreRepairEvent:
		unknown = C.corevec_repair(unsafe.Pointer(e))
	}
	if unknown != 0 {
		return errors.New("unknown event")
	}
	return nil
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreSlotsEvent{})-C.sizeof_struct_slots_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreReleaseEvent{})-C.sizeof_struct_release_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreGroupsEvent{})-C.sizeof_struct_groups_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreEdgeEvent{})-C.sizeof_struct_edge_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreCreditEvent{})-C.sizeof_struct_credit_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreGrantEvent{})-C.sizeof_struct_grant_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreBucketEvent{})-C.sizeof_struct_bucket_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreArrivalsEvent{})-C.sizeof_struct_arrivals_event]
	_ = [1]struct{}{}[unsafe.Sizeof(coretest.CoreRepairEvent{})-C.sizeof_struct_repair_event]
)
