package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"weir/law/fabric"
)

// tuple reads the two ends of a flow.
func tuple(proto uint8, src, dst string) (t fabric.Tuple, err error) {
	a, err1 := netip.ParseAddrPort(src)
	b, err2 := netip.ParseAddrPort(dst)
	if err := errors.Join(err1, err2); err != nil {
		return t, fmt.Errorf("a flow from %q to %q: write both as address:port: %w", src, dst, err)
	}
	if !a.Addr().Is4() || !b.Addr().Is4() || proto != protoTCP && proto != protoUDP {
		return t, fmt.Errorf("a flow from %q to %q: only TCP (6) and UDP (17) over IPv4 can be pinned", src, dst)
	}
	return fabric.Tuple{Proto: proto, Src: a.Addr().As4(), Dst: b.Addr().As4(), SrcPort: a.Port(), DstPort: b.Port()}, nil
}

// Pin asks the controller of this name to keep a flow on one path.
func Pin(ctx context.Context, name string, in Within, p PinRequest) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://controller/pin", bytes.NewReader(text))
	if err != nil {
		return err
	}
	a, err := client(name, in).Do(q)
	if err != nil {
		return unreached(name, err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(a.Body, 1000)) // a part is enough
		return fmt.Errorf("controller %s: %s", name, strings.TrimSpace(string(said)))
	}
	return nil
}
