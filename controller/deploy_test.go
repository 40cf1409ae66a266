package controller

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"testing"

	"weir/openflow/channel"
)

// The schema is committed for editors; it must be that of the types.
func TestSchemaIsCommitted(t *testing.T) {
	want, err := os.ReadFile("../deploy/controller.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, Schema()) {
		t.Error("deploy/controller.schema.json differs: make generate, then review the diff")
	}
}

// The example that packages install says of every key what holds without it, but for certificates, and for the bus, whose certificates must be there.
func TestExample_SaysTheDefaults(t *testing.T) {
	text, err := os.ReadFile("../deploy/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := kindController().Parse("", []byte("kind: Controller\n"))
	if err != nil {
		t.Fatal(err)
	}
	as, err := kindController().Parse("controller.yaml", text)
	if err != nil || !reflect.DeepEqual(as, plain) {
		t.Errorf("as it is: %+v, %v", as, err)
	}
	for _, key := range []string{"name", "listen", "tls", "generation", "poll", "rates", "limits", "metrics", "bus", "record", "laws"} {
		if !regexp.MustCompile(`(?m)^# ` + key + `:`).Match(text) {
			t.Errorf("it does not mention %s", key)
		}
	}
	text = regexp.MustCompile(`(?m)^# bus:\n(#   .*\n)+`).ReplaceAll(text, nil)
	said, err := kindController().Parse("said.yaml", regexp.MustCompile(`(?m)^# ?( *[a-z_]+:( |$))`).ReplaceAll(text, []byte("$1")))
	if err != nil {
		t.Fatalf("what it says in comments cannot be said: %v", err)
	}
	got, want := said.config(), plain.config()
	want.TLS = &channel.Certificates{CA: "/etc/weir/ca.pem", Certificate: "/etc/weir/controller.pem", Key: "/etc/weir/controller.key"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("what it says in comments is not what holds without:\n%+v\n%+v", got, want)
	}
}
