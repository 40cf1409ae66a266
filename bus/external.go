package bus

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"weir/bus/pki"
)

// External describes one server of a cluster that the operator runs with nats-server.
type External struct {
	Name    string
	Listen  string // address:port for clients
	Cluster string // address:port for the other servers; "": no cluster
	Routes  []string
	Store   string // directory of JetStream
	Files   pki.Files
	// Clients are all identities that may connect. Others are refused, so the configuration is made again after each enrolment
	// and revocation, and the server reloads it (nats-server --signal reload).
	Clients []pki.Identity
}

// ServerFile returns the configuration file of a server with the permissions and limits of the embedded one. NATS checks CA,
// times and identity of certificates, and knows no list of revoked ones: so a revoked identity is left out.
func (e *External) ServerFile() (string, error) {
	for _, text := range []string{e.Name, e.Listen, e.Cluster, e.Store, e.Files.CA, e.Files.Own, strings.Join(e.Routes, "")} {
		if strings.ContainsAny(text, "\"\\\n$") {
			return "", fmt.Errorf("the configuration of the bus cannot have %q", text)
		}
	}
	if e.Listen == "" || e.Store == "" {
		return "", errors.New("a server of the bus needs an address and a directory for its store")
	}
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("# Made by 'weir bus config'. Make it again after each enrolment and revocation.")
	line("server_name: %q", e.Name)
	line("listen: %q", e.Listen)
	line("max_connections: %d", MaxConnections)
	line("max_subscriptions: %d", MaxSubscriptions)
	line("max_payload: %d", maxMessage)
	line("max_pending: %d", MaxPending)
	line("max_control_line: %d", MaxControlLine)
	line("ping_interval: %q", pingEvery)
	line("ping_max: %d", maxPings)
	line("write_deadline: %q", handshakeTimeout)
	line("jetstream { store_dir: %q, max_file_store: %d, max_memory_store: %d, sync_interval: always }", e.Store, maxStore+maxWork, maxStore)
	tls := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true, min_version: \"1.3\", timeout: %v",
		e.Files.Own, e.Files.Own, e.Files.CA, handshakeTimeout.Seconds())
	line("tls { %s, handshake_first: true }", tls)
	line("authorization { timeout: %v, users: [", handshakeTimeout.Seconds()+1)
	for _, id := range sorted(e.Clients) {
		if id.Role == pki.Bus {
			continue
		}
		allowed := Allowed(id)
		line("  { user: %q, permissions: {", id.URI())
		line("    publish: %s", permissionText(allowed.Publish))
		if allowed.Answers {
			line("    allow_responses: { max: 1, expires: %q }", answerOnce)
		}
		line("    subscribe: %s } }", permissionText(allowed.Subscribe))
	}
	line("] }")
	if e.Cluster == "" {
		return b.String(), nil
	}
	if _, _, err := net.SplitHostPort(e.Cluster); err != nil {
		return "", err
	}
	// A route has all rights. Certificates of servers, and no others, have this name.
	line("cluster { name: weir, listen: %q, tls { %s }", e.Cluster, tls)
	line("  authorization { user: %q, password: \"unused\", timeout: %v }", pki.RouteName, handshakeTimeout.Seconds()+1)
	line("  routes: [")
	for _, r := range e.Routes {
		line("    %q", "nats-route://"+r)
	}
	line("] }")
	return b.String(), nil
}

func permissionText(subjects []string) string {
	if len(subjects) == 0 {
		return `{ deny: ">" }`
	}
	return `{ allow: ["` + strings.Join(subjects, `", "`) + `"] }`
}
