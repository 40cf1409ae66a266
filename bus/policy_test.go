package bus

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/datapath/testnet"

	"github.com/nats-io/nats.go"
)

// An operator may replace the head of the policy store. It cannot use that to remove the log: not by rollup, and not by purging.
func TestPolicyStore_KeepsTheLog(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	controller := k.dial(k.enrol("controller/c1"), url)
	js, _, err := controller.PolicyStore(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	const log = "$KV.weir-policy.change.1-x.operator.bob"
	if _, err := js.Publish(ctx, log, []byte("x")); err != nil {
		t.Fatal(err)
	}
	operator := k.dial(k.enrol("operator/alice"), url)
	own, stream, err := operator.PolicyStore(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, rollup := range []string{"all", "sub"} {
		m := &nats.Msg{Subject: "$KV.weir-policy.head", Header: nats.Header{"Nats-Rollup": {rollup}}}
		if _, err := own.PublishMsg(ctx, m); err == nil || !strings.Contains(err.Error(), "rollup not permitted") {
			t.Errorf("rollup %s: %v", rollup, err)
		}
	}
	if _, err := stream.GetLastMsgForSubject(ctx, log); err != nil {
		t.Errorf("the log is gone: %v", err)
	}
}

// A certificate that the bus refuses, and a bus that is not there: the error says why.
func TestConn_Ready(t *testing.T) {
	k := newKit(t)
	files := k.enrol("operator/alice")
	if _, err := k.ca.Revoke("operator/alice"); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{"tls://" + testnet.FreeAddress(t): "connection refused", k.server(nil).URL(): "bad certificate"} {
		c, err := Dial(k.client(files, url))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if err := c.Ready(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
		cancel()
		c.Close()
	}
}
