package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/openflow"
	"weir/openflow/channel"
)

// switchDump is the state of a switch.
type switchDump struct {
	Features    openflow.FeaturesReply    `json:"features"`
	Description *openflow.DescReply       `json:"description"`
	Ports       []switchPort              `json:"ports"`
	Tables      []openflow.TableStats     `json:"tables"` // with entries
	Groups      openflow.GroupDescReply   `json:"groups"`
	Meters      openflow.MeterConfigReply `json:"meters"`
	Flows       openflow.FlowStatsReply   `json:"flows"`
	// Missing lists what the switch did not answer, with the reason: not every switch has meters.
	Missing map[string]string `json:"missing,omitempty"`
}

// switchPort is a port with its counters; Stats is nil if the switch has none for it.
type switchPort struct {
	openflow.Port
	Stats *openflow.PortStats `json:"stats"`
}

// dumpSwitch reads everything. Missing lists what cannot be read, unless the connection is lost.
func dumpSwitch(ctx context.Context, c *channel.Conn) (*switchDump, error) {
	d := &switchDump{Features: c.Features(), Missing: make(map[string]string)}
	all := openflow.FlowStatsRequest{TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny}
	questions := []struct {
		what string
		ask  func() error
	}{
		{"description", func() (err error) { d.Description, err = description(ctx, c); return err }},
		{"ports", func() (err error) { d.Ports, err = portsOf(ctx, c); return err }},
		{"tables", func() error {
			tables, err := gatherPlain[openflow.TableStatsReply](ctx, c, openflow.MultipartTable)
			d.Tables = slices.DeleteFunc(tables, func(t openflow.TableStats) bool { return t.ActiveCount == 0 })
			return err
		}},
		{"groups", func() (err error) {
			d.Groups, err = gatherPlain[openflow.GroupDescReply](ctx, c, openflow.MultipartGroupDesc)
			return err
		}},
		{"meters", func() (err error) {
			d.Meters, err = gather[openflow.MeterConfigReply](ctx, c, openflow.MeterConfigRequest{MeterID: openflow.MeterAll})
			return err
		}},
		{"flows", func() (err error) { d.Flows, err = gather[openflow.FlowStatsReply](ctx, c, all); return err }},
	}
	for _, q := range questions {
		err := q.ask()
		if err != nil {
			d.Missing[q.what] = err.Error()
		}
		if c.Err() != nil || ctx.Err() != nil {
			return d, err
		}
	}
	return d, nil
}

func description(ctx context.Context, c *channel.Conn) (*openflow.DescReply, error) {
	parts, err := c.Multipart(ctx, &openflow.MultipartRequest{Type: openflow.MultipartDesc})
	if err != nil {
		return nil, err
	}
	d, ok := parts[0].Body.(*openflow.DescReply)
	if !ok {
		return nil, fmt.Errorf("the switch answers the request for its description with %T", parts[0].Body)
	}
	return d, nil
}

// portsOf joins the descriptions and the counters of ports, by number.
func portsOf(ctx context.Context, c *channel.Conn) ([]switchPort, error) {
	ports, err := gatherPlain[openflow.PortDescReply](ctx, c, openflow.MultipartPortDesc)
	if err != nil {
		return nil, err
	}
	counters, err := gather[openflow.PortStatsReply](ctx, c, openflow.PortStatsRequest{PortNo: openflow.PortAny})
	if err != nil {
		return nil, err
	}
	all := make([]switchPort, 0, len(ports))
	for i := range ports {
		p := switchPort{Port: ports[i]}
		if k := slices.IndexFunc(counters, func(s openflow.PortStats) bool { return s.PortNo == p.PortNo }); k >= 0 {
			p.Stats = &counters[k]
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b switchPort) int { return int(int64(a.PortNo) - int64(b.PortNo)) })
	return all, nil
}

// list is a multipart body that may be split.
type list[E any] interface {
	~[]E
	openflow.MultipartBody
}

// gather sends a request with a body, and joins the parts of the answer.
func gather[L list[E], E any](ctx context.Context, c *channel.Conn, ask openflow.MultipartBody) (L, error) {
	return gatherFrom[L](ctx, c, &openflow.MultipartRequest{Type: ask.MultipartType(), Body: ask})
}

// gatherPlain sends a request without a body.
func gatherPlain[L list[E], E any](ctx context.Context, c *channel.Conn, kind openflow.MultipartType) (L, error) {
	return gatherFrom[L](ctx, c, &openflow.MultipartRequest{Type: kind})
}

func gatherFrom[L list[E], E any](ctx context.Context, c *channel.Conn, ask *openflow.MultipartRequest) (L, error) {
	parts, err := c.Multipart(ctx, ask)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", ask.Type, err)
	}
	all := L{}
	for _, p := range parts {
		l, ok := p.Body.(L)
		if !ok {
			return nil, fmt.Errorf("request %s: unexpected answer %T", ask.Type, p.Body)
		}
		all = append(all, l...)
	}
	return all, nil
}

// parseCookie parses COOKIE[/MASK], decimal or 0x. Without a mask all bits count; without a cookie, none.
func parseCookie(s string) (cookie, mask uint64, err error) {
	if s == "" {
		return 0, 0, nil
	}
	value, bits, masked := strings.Cut(s, "/")
	if cookie, err = strconv.ParseUint(value, 0, 64); err != nil {
		return 0, 0, fmt.Errorf("--cookie %s: %w", s, err)
	}
	mask = ^uint64(0)
	if masked {
		if mask, err = strconv.ParseUint(bits, 0, 64); err != nil {
			return 0, 0, fmt.Errorf("--cookie %s: %w", s, err)
		}
	}
	return cookie, mask, nil
}
