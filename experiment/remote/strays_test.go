package remote

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
)

// A result whose upload did not end leaves the store, and whole ones stay.
func TestStrays_AreRemoved(t *testing.T) {
	k := newKit(t)
	c := k.client()
	defer c.Close()
	conn, err := bus.Dial(k.config(pki.Worker, "w1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn.Client())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := js.ObjectStore(t.Context(), bus.WorkStore)
	if err == nil {
		_, err = objects.PutBytes(t.Context(), "whole", []byte("whole"))
	}
	if err == nil {
		_, err = js.Publish(t.Context(), "$O."+bus.WorkStore+".C.STRAY", []byte("half"))
	}
	if err != nil {
		t.Fatal(err)
	}
	left := func() (n uint64) {
		s, err := c.objects.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.(*jetstream.ObjectBucketStatus).StreamInfo().State.Msgs
	}
	var s strays
	for i, want := range []uint64{3, 2, 2} { // a chunk and a result, and the stray
		if err := s.sweep(t.Context(), c.js, c.objects); err != nil {
			t.Fatal(err)
		}
		if n := left(); n != want {
			t.Errorf("after %d looks: %d messages, want %d", i+1, n, want)
		}
	}
	if b, err := c.objects.GetBytes(t.Context(), "whole"); err != nil || string(b) != "whole" {
		t.Errorf("%q, %v", b, err)
	}
}
