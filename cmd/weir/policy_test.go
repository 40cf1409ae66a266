package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/bus"
	"weir/bus/pki"
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
	c, err := bus.Dial(bus.ClientConfig{URLs: []string{ts.Getenv("BUS")}, Files: pki.In(ts.MkAbs(args[0]), args[0])})
	ts.Check(err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ts.Check(c.Ready(ctx))
	kv, err := store.Bus(ctx, c, 1)
	ts.Check(err)
	s := store.New(kv, store.Author{Identity: c.Identity().String()})
	old, problems, err := s.Inventory(ctx)
	ts.Check(errors.Join(append(problems, err)...))
	for _, n := range old {
		ts.Check(s.DeleteNode(ctx, n.Name))
	}
	for i := range nodes {
		ts.Check(s.PutNode(ctx, &nodes[i]))
	}
}
