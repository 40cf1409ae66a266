package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"weir/datapath"
	"weir/experiment"
	"weir/lab"
)

// Runs without FairQ and with it take turns; the medians are compared.
const (
	unshapedRounds = 7
	// unshapedSeconds of each run are measured, after one that is not.
	unshapedSeconds = 4
	unshapedBuffer  = 8 << 20 // bytes of the port's queue, of which half is the target
)

// unshapedTicks are the sampling intervals (T) that are compared: that of the experiments, and one that
// takes one sample an update (M = 1, and the same M*T). What a timer costs, the group `timer` says.
var unshapedTicks = []time.Duration{fairqTick, fairqTick * fairqSamples}

// unshaped compares the throughput of a path that nothing limits but the processors, with FairQ on its
// switch and without. The port has a queue (bfifo), for FairQ needs one, in both cases.
func unshaped(ctx context.Context) (rows []row, err error) {
	for _, offloads := range []bool{true, false} {
		err := withLab(ctx, "truth-unshaped", oneFlow, func(l *lab.Lab, _ *experiment.Run) error {
			if err := unshape(l, offloads); err != nil {
				return err
			}
			for _, flows := range []int{1, 16} {
				r, err := withAgainstWithout(ctx, l, flows, offloads)
				if err != nil {
					return err
				}
				rows = append(rows, r...)
			}
			return nil
		}, "topology.senders=1")
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func withAgainstWithout(ctx context.Context, l *lab.Lab, flows int, offloads bool) (rows []row, err error) {
	server, err := iperfServer(ctx, l, "receiver1")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server()) }()
	kinds := append([]time.Duration{0}, unshapedTicks...) // 0: without
	mbps := map[time.Duration][]float64{}
	for i := range unshapedRounds {
		for j := range kinds {
			tick := kinds[(i+j)%len(kinds)] // who is first alternates
			got, err := unshapedRun(ctx, l, flows, tick)
			if err != nil {
				return nil, err
			}
			mbps[tick] = append(mbps[tick], got)
		}
	}
	for _, tick := range unshapedTicks {
		var pairs []float64
		for i := range unshapedRounds {
			pairs = append(pairs, mbps[tick][i]/mbps[0][i])
		}
		rows = append(rows, row{
			what: fmt.Sprintf("unshaped, offloads %s, %d flows, T = %v: with FairQ", onOff(offloads), flows, tick),
			ours: median(mbps[tick]), reference: median(mbps[0]), unit: "Mbit/s", limit: 0.97, atLeast: true,
			note: fmt.Sprintf("medians of %d in turn; of the pairs' ratios %.3f, %.3f to %.3f",
				unshapedRounds, median(pairs), slices.Min(pairs), slices.Max(pairs)),
		})
	}
	return rows, nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// unshapedRun is one run of iperf3 with so many flows, in Mbit/s, with FairQ sampling at this interval; 0:
// without FairQ.
func unshapedRun(ctx context.Context, l *lab.Lab, flows int, tick time.Duration) (float64, error) {
	if tick == 0 {
		return iperfOnce(ctx, l, flows)
	}
	// No largest window: what is measured is what the program costs.
	law := datapath.FairQLaw{
		TargetBytes: unshapedBuffer / 2, BufferBytes: unshapedBuffer, Tick: tick, Period: fairqTick * fairqSamples,
	}
	f, err := startFairQ(l, datapath.FairQConfig{}, func(*lab.Port) datapath.FairQLaw { return law })
	if err != nil {
		return 0, err
	}
	got, err := iperfOnce(ctx, l, flows)
	s, e := f.read()
	if err = errors.Join(err, e, f.stop()); err == nil && (s.Data == 0 || s.DeviceRefused != 0 || s.Opened < uint64(flows)) {
		err = fmt.Errorf("the flows were not governed: %+v", s)
	}
	return got, err
}

// unshape takes the shapers away, gives the switch's ports a queue without a rate, and turns the
// offloads of all devices on or off.
func unshape(l *lab.Lab, offloads bool) error {
	for _, p := range l.Ports() {
		err := l.Enter(p.Node, func() error {
			root := netlink.QdiscAttrs{LinkIndex: p.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
			if err := netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "tbf"}); err != nil {
				return err
			}
			if err := setOffloads(p.Ifname, offloads); err != nil || !p.OfSwitch {
				return err
			}
			link, err := netlink.LinkByIndex(p.Ifindex)
			if err != nil {
				return err
			}
			// The limit of a bfifo that is not told one.
			if err := netlink.LinkSetTxQLen(link, unshapedBuffer/(link.Attrs().MTU+14)); err != nil {
				return err
			}
			return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "bfifo"})
		})
		if err != nil {
			return fmt.Errorf("take the shaper off %s: %w", p.Name, err)
		}
	}
	return nil
}

func setOffloads(ifname string, on bool) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(ifname, map[string]bool{
		"tx-generic-segmentation": on, "tx-tcp-segmentation": on, "tx-tcp-ecn-segmentation": on,
		"tx-tcp-mangleid-segmentation": on, "rx-gro": on,
	})
}

// iperfServer runs an iperf3 server in a node. Its processor is the second one.
func iperfServer(ctx context.Context, l *lab.Lab, node string) (stop func() error, err error) {
	cmd := exec.CommandContext(ctx, "iperf3", "-s", "-A", "1")
	if err := start(l, node, cmd); err != nil {
		return nil, err
	}
	stop = func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
		return err
	}
	if err := awaitListener(ctx, l, node, l.Addr(node, 0).String()+":5201"); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// iperfOnce runs an iperf3 client against the server and gives what arrived, in Mbit/s. The sender, on
// whose processor a veth's packets are forwarded and received too, has the first one.
func iperfOnce(ctx context.Context, l *lab.Lab, flows int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "iperf3", "-c", l.Addr("receiver1", 0).String(), "-J", "-O", "1",
		"-t", strconv.Itoa(unshapedSeconds), "-P", strconv.Itoa(flows), "-A", "0")
	cmd.Stdout = &out
	if err := start(l, "sender1", cmd); err != nil {
		return 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("iperf3: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return iperfReceived(out.Bytes())
}

// iperfReceived is what an iperf3 client says that the server received, without the omitted seconds.
func iperfReceived(report []byte) (float64, error) {
	var doc struct {
		End struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(report, &doc); err != nil {
		return 0, fmt.Errorf("iperf3's report: %w", err)
	}
	if doc.End.SumReceived.BitsPerSecond == 0 {
		return 0, errors.New("iperf3 reports that nothing arrived")
	}
	return doc.End.SumReceived.BitsPerSecond / 1e6, nil
}
