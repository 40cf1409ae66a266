package bus

import (
	"fmt"
	"slices"
	"strings"

	"weir/bus/pki"
)

// Subjects end with the name of the agent or controller that sends them (telemetry, events, heartbeats) or reads them
// (commands). Marks have both names: the agent that sends them, and the one that reads them.
const (
	telemetryPrefix = "weir.v1.tel."
	eventsPrefix    = "weir.v1.evt."
	commandPrefix   = "weir.v1.cmd."
	marksPrefix     = "weir.v1.mrk."
	controlPrefix   = "weir.v1.ctl."
)

// Stores are the names of the key-value stores: leases, and policy.
var Stores = []string{leaseStore, PolicyBucket}

const leaseStore = "weir-leases"

// Subjects are what an identity may publish to and subscribe to. Everything else is refused.
type Subjects struct {
	Publish, Subscribe []string
	Answers            bool // to the reply subject of a message that it gets, once
}

// Allowed returns the subjects of an identity. Servers of the bus have none: they are no clients.
func Allowed(id pki.Identity) Subjects {
	s := Subjects{Subscribe: []string{InboxPrefix(id) + ".>"}}
	switch id.Role {
	case pki.Agent:
		s.Publish = []string{telemetryPrefix + id.Name, eventsPrefix + id.Name, marksSubject(id.Name, "*")}
		s.Subscribe, s.Answers = append(s.Subscribe, commandPrefix+id.Name, marksSubject("*", id.Name), askSubject(id)), true
	case pki.Controller:
		s.Publish = append([]string{commandPrefix + "*", controlPrefix + id.Name}, storeSubjects()...)
		s.Subscribe, s.Answers = append(s.Subscribe, telemetryPrefix+"*", eventsPrefix+"*", controlPrefix+"*", askSubject(id)), true
	case pki.Worker, pki.Operator:
		work := workerSubjects(id.Name)
		if id.Role == pki.Operator {
			work = operatorSubjects(id.Name)
			s.Publish = append(policySubjects(id), askPrefix+string(pki.Controller)+".*", askPrefix+string(pki.Agent)+".*")
			s.Subscribe = append(s.Subscribe, controlPrefix+"*")
		}
		s.Publish, s.Subscribe = append(s.Publish, work.Publish...), append(s.Subscribe, work.Subscribe...)
	case pki.Observer:
		s.Subscribe = append(s.Subscribe, "weir.v1.>")
	default:
		s.Subscribe = nil
	}
	return s
}

func marksSubject(from, to string) string { return marksPrefix + from + "." + to }

// InboxPrefix returns the prefix of an identity's inboxes. Others cannot read the replies that it gets.
func InboxPrefix(id pki.Identity) string { return fmt.Sprintf("_INBOX.weir.%s.%s", id.Role, id.Name) }

// storeSubjects are those with which a controller reads and writes the key-value stores, and no other stream.
func storeSubjects() []string {
	out := []string{"$JS.API.INFO"}
	for _, name := range Stores {
		stream := "KV_" + name
		for _, call := range []string{"STREAM.INFO.", "STREAM.CREATE.", "STREAM.UPDATE.", "STREAM.MSG.GET.", "DIRECT.GET."} {
			out = append(out, "$JS.API."+call+stream)
		}
		out = append(out, "$JS.API.DIRECT.GET."+stream+".>", "$JS.API.CONSUMER.CREATE."+stream+".>", "$JS.API.CONSUMER.DELETE."+stream+".>",
			"$KV."+name+".>", "$JS.FC."+stream+".>")
	}
	return out
}

// policySubjects are those with which an operator reads the policy store, and writes policies under its own name. It has no
// consumers: those can send stored messages to any subject.
func policySubjects(id pki.Identity) []string {
	const stream, keys = "KV_" + PolicyBucket, "$KV." + PolicyBucket
	out := []string{"$JS.API.INFO", keys + ".head", keys + ".text." + author(id) + ".*", keys + ".change.*." + author(id), "$JS.API.DIRECT.GET." + stream + ".>"}
	for _, call := range []string{"STREAM.INFO.", "STREAM.MSG.GET.", "DIRECT.GET."} {
		out = append(out, "$JS.API."+call+stream)
	}
	return out
}

// author returns an identity as a part of keys of the policy store.
func author(id pki.Identity) string { return string(id.Role) + "." + id.Name }

// nameIn returns the name at the end of a subject with that prefix; "" for another subject.
func nameIn(subject, prefix string) string {
	name, found := strings.CutPrefix(subject, prefix)
	if !found || strings.Contains(name, ".") {
		return ""
	}
	return name
}

// sorted returns the identities of the list, each once, in a fixed order.
func sorted(list []pki.Identity) []pki.Identity {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b pki.Identity) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}
