package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
)

// newCluster starts three servers from generated files.
func (k *kit) newCluster(clients ...string) (servers []*server.Server, urls []string) {
	k.t.Helper()
	var list []External
	var routes []string
	for i := range 3 {
		e := External{
			Name: fmt.Sprint("b", i+1), Listen: testnet.FreeAddress(k.t), Cluster: testnet.FreeAddress(k.t), Store: k.t.TempDir(),
			Files: k.enrol(fmt.Sprint("bus/b", i+1)),
		}
		for _, c := range clients {
			id, err := pki.ParseIdentity(c)
			if err != nil {
				k.t.Fatal(err)
			}
			e.Clients = append(e.Clients, id)
		}
		list, routes, urls = append(list, e), append(routes, e.Cluster), append(urls, "tls://"+e.Listen)
	}
	for i := range list {
		list[i].Routes = routes
		servers = append(servers, k.start(&list[i]))
	}
	until(k.t, "leader of the store", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() {
				return true
			}
		}
		return false
	})
	return servers, urls
}

// On three servers, two controllers share the buckets, one takes over from the other, and the loss of a server, also of the one
// that leads the store, does not end control.
func TestCluster(t *testing.T) {
	k := newKit(t)
	clients := []string{"controller/c1", "controller/c2", "agent/sw0", "agent/sw1", "agent/sw2", "agent/sw3"}
	servers, urls := k.newCluster(clients...)
	p := newPair(k, 3, 4, urls...)
	until(t, "owner of each bucket", func() bool { c := p.held(); return c[0]+c[1] == 4 })
	for _, c := range p.commands {
		<-c
	}
	before := p.held()
	for _, s := range servers {
		if s.JetStreamIsLeader() {
			s.Shutdown()
			s.WaitForShutdown()
			break
		}
	}
	killed := time.Now()
	for i, c := range p.commands {
		for {
			// A command that was sent after the death of the server.
			if m := <-c; time.Duration(m.command.GetEchoNs()) > killed.Sub(begun) {
				t.Logf("agent %d obeys %v after the death of the store's leader (busy machine)", i, m.at.Sub(killed))
				break
			}
		}
	}
	t.Logf("buckets held before: %v, after: %v", before, p.held())
	took := p.takeOver(0)
	t.Logf("the other controller is obeyed %v after the kill, with two servers left (busy machine)", took)
}

// A certificate of an agent or a controller cannot be used for a route, which has all rights.
func TestCluster_RoutesNeedTheRole(t *testing.T) {
	k := newKit(t)
	genuine := External{Name: "b1", Listen: testnet.FreeAddress(k.t), Cluster: testnet.FreeAddress(t), Store: t.TempDir(), Files: k.enrol("bus/b1")}
	genuine.Routes = []string{genuine.Cluster} // NATS needs one
	s := k.start(&genuine)
	for _, id := range []string{"agent/sw1", "controller/c1", "bus/b2"} {
		e := External{
			Name: "x-" + id[:3], Listen: testnet.FreeAddress(k.t), Cluster: testnet.FreeAddress(t), Store: t.TempDir(),
			Files: k.enrol(id), Routes: []string{genuine.Cluster},
		}
		x := k.start(&e)
		if id == "bus/b2" {
			until(t, "route of a server", func() bool { return s.NumRoutes() > 0 })
			continue
		}
		// The server refuses the stranger's route, and the stranger logs it with the address that it had asked.
		until(t, "refusal of "+id, func() bool { return k.log.Has(genuine.Cluster[len("127.0.0.1:"):]+" - rid", "Authorization Violation") })
		if n := s.NumRoutes(); n > 0 {
			t.Errorf("%s has %d routes", id, n)
		}
		x.Shutdown()
		x.WaitForShutdown()
	}
}

// Three embedded servers are a cluster, too.
func TestCluster_Embedded(t *testing.T) {
	k := newKit(t)
	var routes []string
	for range 3 {
		routes = append(routes, testnet.FreeAddress(k.t))
	}
	var urls []string
	for i := range 3 {
		files := k.enrol(fmt.Sprint("bus/b", i+1))
		s := k.server(func(c *ServerConfig) { c.Files, c.Cluster, c.Routes = files, routes[i], routes })
		urls = append(urls, s.URL())
	}
	r := k.runner(k.enrol("controller/c1"), false, 3, urls[0])
	defer r.Close()
	a, commands := k.agent(k.enrol("agent/sw0"), urls[2])
	stop := make(chan struct{})
	defer close(stop)
	p := &pair{k: k, stop: stop}
	go answer(r, stop)
	go p.report(a)
	if c := <-commands; c.command.GetController().GetName() != "c1" || len(c.command.GetGrants()) != 1 {
		t.Errorf("it obeys %v", c.command)
	}
	if err := a.SendEvents(&weirv1.Events{Host: 1}); err != nil {
		t.Error(err)
	}
}
