package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/bus"
	"weir/bus/pki"
	"weir/law"
	"weir/policy"
	"weir/policy/store"
)

// startBus is a command of scripts: startbus NAME starts the server of the bus that is enrolled in the directory NAME, and
// sets BUS to its URL. The server ends with the script.
func startBus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: startbus NAME")
	}
	s, err := bus.StartServer(bus.ServerConfig{Listen: "127.0.0.1:0", Files: pki.In(ts.MkAbs(args[0]), args[0]), Store: ts.MkAbs("store")})
	ts.Check(err)
	ts.Defer(s.Close)
	ts.Setenv("BUS", s.URL())
}

// putInventory is a command of scripts: inventory NAME FILE makes the store of policies as the controller that is enrolled in the
// directory NAME, and replaces the inventory by the nodes of a JSON file.
func putInventory(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: inventory NAME FILE")
	}
	var nodes []policy.Node
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &nodes))
	ctx, s, end := asController(ts, args[0])
	defer end()
	old, problems, err := s.Inventory(ctx)
	ts.Check(errors.Join(append(problems, err)...))
	for _, n := range old {
		ts.Check(s.DeleteNode(ctx, n.Name))
	}
	for i := range nodes {
		ts.Check(s.PutNode(ctx, &nodes[i]))
	}
}

// asController opens the store of policies as a controller.
func asController(ts *testscript.TestScript, name string) (context.Context, *store.Store, func()) {
	c, err := bus.Dial(bus.ClientConfig{URLs: []string{ts.Getenv("BUS")}, Files: pki.In(ts.MkAbs(name), name)})
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	ts.Check(c.Ready(ctx))
	kv, err := store.Bus(ctx, c, 1)
	ts.Check(err)
	return ctx, store.New(kv, store.Author{Identity: c.Identity().String()}), func() { cancel(); c.Close() }
}

// putLive is a command of scripts: enforced NAME CHANGE NODE... reports as the controller of that name that it enforces the policies of
// a change at the nodes, and has granted h1/db1 a rate. The report is of the next minute, so that its age is 0.
func putLive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: enforced NAME CHANGE NODE...")
	}
	change, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	ctx, s, end := asController(ts, args[0])
	defer end()
	grant := policy.TargetGrant{Target: "vm h1/db1", LiveGrant: policy.LiveGrant{Kind: law.RateGrant, Value: 1e9, Expiry: time.Second}}
	ts.Check(s.PutLive(ctx, &policy.Live{Controller: args[0], Time: time.Now().Add(time.Minute), Change: change, Nodes: args[2:], Grants: []policy.TargetGrant{grant}}))
}
