package coretest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/core"
	"weir/datapath/internal/coretest"
	"weir/datapath/internal/corevec"
	"weir/datapath/internal/vector"
	"weir/internal/testroot"
)

// events numbers the events as bpf/coretest.bpf.c does.
var events = map[string]uint32{
	"reset": 1, "saw_mss": 2, "flow_added": 3, "flow_removed": 4, "sample": 5, "packet_may_sample": 6,
	"rewrite": 7, "floor": 8, "checksum": 9,
	"decide": 10, "opening": 11, "empty_may_rest": 12,
}

// The kernel reproduces every vector, to the bit.
func TestVectors(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	var objects coretest.CoreObjects
	if err := coretest.LoadCoreObjects(&objects, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = objects.Close() })
	machines := map[string]vector.Machine{
		"fairq":  &fairqMachine{kernel: kernel{objects.RunFairq, objects.FairqEvents}},
		"window": &windowMachine{kernel: kernel{objects.RunWindow, objects.WindowEvents}},
		"mark":   &markMachine{kernel: kernel{objects.RunMark, objects.MarkEvents}},
	}
	for law, program := range map[string]kernel{
		"slots": {objects.RunSlots, objects.SlotsEvents}, "release": {objects.RunRelease, objects.ReleaseEvents},
		"groups": {objects.RunGroups, objects.GroupsEvents}, "edge": {objects.RunEdge, objects.EdgeEvents}, "credit": {objects.RunCredit, objects.CreditEvents},
		"grant": {objects.RunGrant, objects.GrantEvents}, "bucket": {objects.RunBucket, objects.BucketEvents},
		"arrivals": {objects.RunArrivals, objects.ArrivalsEvents}, "repair": {objects.RunRepair, objects.RepairEvents},
	} {
		machines[law] = corevec.Machines(program.run)[law]()
	}
	names, err := fs.Glob(core.Vectors, "testdata/*.vec")
	if err != nil || len(names) < len(machines) {
		t.Fatalf("vectors %v, %v", names, err)
	}
	all := map[string]int{} // vectors, by law
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			text, err := core.Vectors.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := vector.Parse(name, text)
			if err != nil {
				t.Fatal(err)
			}
			checked, wrong, err := f.Run(machines[f.Law])
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range wrong[:min(len(wrong), 5)] {
				t.Error(w)
			}
			if len(wrong) > 0 {
				t.Log("after a change of datapath/core: run make generate, which compiles the kernel objects again")
			}
			t.Logf("%d checked, %d wrong", checked, len(wrong))
			all[f.Law] += checked
		})
	}
	for law := range machines {
		if all[law] < 100 {
			t.Errorf("only %d vectors of %s", all[law], law)
		}
	}
}

// kernel runs one law's program on the one value of its map.
type kernel struct {
	program *ebpf.Program
	events  *ebpf.Map
}

// run runs one event: value is a pointer to the event, and the program's result replaces it.
func (k kernel) run(value any) error {
	if err := k.events.Put(uint32(0), value); err != nil {
		return err
	}
	verdict, err := k.program.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil {
		return err
	}
	if verdict != 0 {
		return fmt.Errorf("the program returned %d: it does not know the event", verdict)
	}
	return k.events.Lookup(uint32(0), value)
}

type fairqMachine struct {
	kernel
	value coretest.CoreFairqEvent
}

func (m *fairqMachine) Begin(config, state vector.Fields) error {
	return errors.Join(config.Into(&m.value.Config), state.Into(&m.value.State))
}

func (m *fairqMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	m.value.Event, m.value.NowNs, m.value.Bytes = events[event], args.Get("now_ns"), uint32(args.Get("bytes"))
	err = m.run(&m.value)
	return vector.Of(m.value.State), m.value.Result, err
}

type windowMachine struct {
	kernel
	value coretest.CoreWindowEvent
}

func (m *windowMachine) Begin(_, state vector.Fields) error { return state.Into(&m.value.Edge) }

func (m *windowMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	if event == "rewrite" {
		if err := args.Into(&m.value.Ack); err != nil {
			return nil, 0, err
		}
	}
	v := &m.value
	v.Event = uint16(events[event])
	v.MssOptionBytes, v.GsoSizeBytes = uint32(args.Get("mss_option_bytes")), uint32(args.Get("gso_size_bytes"))
	v.Check, v.OldWord, v.NewWord = uint16(args.Get("check")), uint16(args.Get("old_word")), uint16(args.Get("new_word"))
	err = m.run(v)
	return vector.Of(v.Edge), v.Result, err
}

type markMachine struct {
	kernel
	value coretest.CoreMarkEvent
}

func (m *markMachine) Begin(config, _ vector.Fields) error { return config.Into(&m.value.Config) }

func (m *markMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	m.value.Event, m.value.BacklogBytes, m.value.Ecn = events[event], uint32(args.Get("backlog_bytes")), uint32(args.Get("ecn"))
	err = m.run(&m.value)
	return nil, m.value.Result, err
}
