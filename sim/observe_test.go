package sim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/parquet-go/parquet-go"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/sim/network"
)

// captured reads a file with another program's library.
func captured(t *testing.T, path string) (packets []gopacket.Packet, infos []gopacket.CaptureInfo) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return packets, infos
		}
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, gopacket.NewPacket(data, r.LinkType(), gopacket.Default))
		infos = append(infos, info)
	}
}

// A capture has every frame that left the port, in the order of time, with headers that others can read.
func TestPCAP_IsWhatPassedThePort(t *testing.T) {
	dir := t.TempDir()
	r := planned(t, baseWith(
		"{name: f, from: \"sender*\", to: receiver1, pattern: burst, size: 200KB, ecn: true, cc: cubic}",
		"{name: u, from: sender1, to: receiver1, proto: udp, pattern: cbr, rate: 10Mbit, size: 10KB}"), "network.buffer=20KB")[0]
	raw := ran(t, &World{Laws: laws.Sim(), PCAP: dir}, r)
	packets, infos := captured(t, filepath.Join(dir, "droptail-seed=1-bottleneck.pcapng"))
	bytes, options, syns, udp := uint64(0), 0, 0, 0
	last := time.Time{}
	for i, p := range packets {
		info := infos[i]
		bytes += uint64(max(info.Length, 60) + 24) // on the line
		if info.Timestamp.Before(last) {
			t.Fatalf("packet %d at %v is before the one before", i, info.Timestamp)
		}
		last = info.Timestamp
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if ip == nil || int(ip.Length) != info.Length-14 || info.CaptureLength > snapBytes {
			t.Fatalf("packet %d: %v", i, p)
		}
		if got := checksum(sum(p.Data()[14:34], 0)); got != 0 {
			t.Fatalf("packet %d: IP checksum is off by %#x", i, got)
		}
		if u, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP); u != nil {
			udp++
		}
		tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if tcp == nil {
			continue
		}
		if tcp.SYN {
			syns++
			if len(tcp.Options) < 4 || tcp.Options[0].OptionType != layers.TCPOptionKindMSS {
				t.Errorf("SYN with %v", tcp.Options)
			}
		}
		options += len(tcp.Options)
		// The missing bytes are zeros and add nothing.
		pseudo := sum(p.Data()[26:34], 6+uint32(ip.Length)-20)
		if got := checksum(sum(p.Data()[34:], pseudo)); got != 0 {
			t.Fatalf("packet %d: TCP checksum is off by %#x", i, got)
		}
	}
	if syns < 4 || udp == 0 || options == 0 || len(raw.Drops) == 0 {
		t.Errorf("%d SYNs, %d datagrams, %d options, %d drops: this shows nothing", syns, udp, options, len(raw.Drops))
	}
	i := slices.IndexFunc(raw.Ports, func(p result.Port) bool { return len(p.Labels) > 0 })
	samples := raw.Ports[i].Samples
	sent := samples[len(samples)-1].Sent - samples[0].Sent
	if bytes < sent || bytes > sent+20*1538 { // a little later, connections end
		t.Errorf("%d bytes are in the capture, %d left the port", bytes, sent)
	}
}

// A capture of no port is refused before anything is built.
func TestPCAP_WantsAPort(t *testing.T) {
	r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 20KB}"))[0]
	w := &World{Laws: laws.Sim(), PCAP: t.TempDir()}
	if err := w.Check(r); err != nil {
		t.Error(err)
	}
	r.Config.Ports = nil
	if err := w.Check(r); err == nil || !strings.Contains(err.Error(), "names no port to capture") {
		t.Errorf("without a named port: %v", err)
	}
	if err := (&World{Laws: laws.Sim()}).Check(r); err != nil {
		t.Errorf("without --pcap: %v", err)
	}
}

// A capture does not change the run.
func TestObservers_ChangeNothing(t *testing.T) {
	r := planned(t, baseWith("{name: f, from: \"sender*\", to: receiver1, pattern: burst, size: 200KB}"))[0]
	dir := t.TempDir()
	if a, b := Digest(ran(t, &World{Laws: laws.Sim()}, r)), Digest(ran(t, &World{Laws: laws.Sim(), PCAP: dir, Trace: dir}, r)); a != b {
		t.Errorf("%s without, %s with", a, b)
	}
}

// The options of SACK and the flags of a header are where RFC 2018, 3168 and 9768 have them.
func TestFrame_HasTheFieldsOfThePacket(t *testing.T) {
	pk := new(network.Packet)
	pk.SetSrc(1)
	pk.SetDst(2)
	pk.SetSrcPort(10240)
	pk.SetDstPort(5001)
	pk.SetProto(network.TCP)
	pk.SetSeq(1 << 31)
	pk.SetAck(77)
	pk.SetWindow(4321)
	pk.SetScale(-1)
	pk.SetECN(network.CE)
	pk.SetFlags(network.ACK | network.ECE | network.CWR | network.AE)
	pk.SetReserved(5)
	pk.AddBlock(network.Block{From: 100, To: 200})
	pk.AddBlock(network.Block{From: 300, To: 1 << 31})
	pk.SetTag(7<<32 | 9)
	pk.SetBytes(network.HeaderBytes + 20 + 12)
	var b [longestHeaders]byte
	n := frame(&b, pk)
	if n != 54+32 {
		t.Fatalf("%d bytes of headers", n)
	}
	p := gopacket.NewPacket(b[:n], layers.LinkTypeEthernet, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Fatal(p.ErrorLayer().Error())
	}
	ip, tcp := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4), p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if ip.TOS != 3 || ip.SrcIP.String() != "10.0.0.2" || ip.DstIP.String() != "10.0.0.3" || ip.TTL != 64 {
		t.Errorf("%+v", ip)
	}
	if tcp.Seq != 1<<31 || tcp.Ack != 77 || tcp.Window != 4321 || !tcp.ACK || !tcp.ECE || !tcp.CWR || tcp.SYN || b[34+12]&0x0f != 5<<1|1 {
		t.Errorf("%+v, %x", tcp, b[34:54])
	}
	kinds := []layers.TCPOptionKind{}
	for _, o := range tcp.Options {
		kinds = append(kinds, o.OptionType)
	}
	if !slices.Contains(kinds, layers.TCPOptionKindSACK) || !slices.Contains(kinds, layers.TCPOptionKindTimestamps) {
		t.Errorf("options %v", tcp.Options)
	}
	for _, o := range tcp.Options {
		if o.OptionType == layers.TCPOptionKindSACK && (len(o.OptionData) != 16 || o.OptionData[3] != 100 || o.OptionData[12] != 0x80) {
			t.Errorf("blocks %x", o.OptionData)
		}
	}
}

// Feedback of a virtual switch is an experimental option (RFC 4727, RFC 6994), in addition to the guest's own.
func TestFrame_HasFeedback(t *testing.T) {
	pk := new(network.Packet)
	pk.SetSrc(1)
	pk.SetDst(2)
	pk.SetProto(network.TCP)
	pk.SetScale(-1)
	pk.SetFlags(network.ACK)
	pk.SetPayload(100)
	pk.SetTag(7<<32 | 9)
	pk.SetFeedback(network.FeedbackOption)
	pk.SetTotal(1 << 31)
	pk.SetMarked(258)
	pk.SetBytes(network.HeaderBytes + 12 + network.FeedbackBytes + 100)
	var b [longestHeaders]byte
	n := frame(&b, pk)
	p := gopacket.NewPacket(b[:n], layers.LinkTypeEthernet, gopacket.Default)
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || n != 54+24 || tcp.Options[0].OptionType != 253 || !slices.Contains([]layers.TCPOptionKind{tcp.Options[1].OptionType, tcp.Options[2].OptionType}, layers.TCPOptionKindTimestamps) {
		t.Fatalf("%d bytes of headers, %+v", n, tcp)
	}
	if got := fmt.Sprintf("%x", tcp.Options[0].OptionData); got != "57658000000000000102" {
		t.Errorf("feedback %s", got)
	}
}

// A trace shows the windows of both ends of every connection over time.
func TestTrace_ShowsWindowsOverTime(t *testing.T) {
	dir := t.TempDir()
	r := planned(t, baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 500ms}"), "duration=600ms")[0]
	ran(t, &World{Laws: laws.Sim(), Trace: dir}, r)
	rows, err := parquet.ReadFile[TraceRow](filepath.Join(dir, FileName(r)+".parquet"))
	if err != nil {
		t.Fatal(err)
	}
	senders, most, cut := map[string]bool{}, int64(0), 0
	for i, row := range rows {
		senders[row.Host] = true
		most = max(most, row.Cwnd)
		if row.Ssthresh != nil {
			cut++
		}
		if row.T < 0 || row.T > 600 || i > 0 && row.T < rows[i-1].T || row.Group != "long" || row.Dst != "receiver1" {
			t.Fatalf("row %d: %+v", i, row)
		}
	}
	if len(senders) < 5 || most < 20 || cut == 0 {
		t.Errorf("%d rows of %d hosts, cwnd up to %d, %d with a threshold", len(rows), len(senders), most, cut)
	}
}

func TestFileName_IsAFilesName(t *testing.T) {
	r := &experiment.Run{Scheme: "ecn", Seed: 3, Point: map[string]string{"load": "0.5", "ends": "a/b: c"}}
	got := FileName(r)
	if want := "ecn-ends=a_b__c-load=0.5-seed=3-"; !strings.HasPrefix(got, want) || len(got) != len(want)+16 {
		t.Errorf("%q, want %q and a hash", got, want)
	}
	r.Point["ends"] = "a_b: c"
	if other := FileName(r); other == got {
		t.Errorf("two runs are called %q", got)
	}
	r.Point = map[string]string{"load": strings.Repeat("é", 300)}
	if got := FileName(r); len(got) > 255 || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if got := FileName(&experiment.Run{Scheme: "ecn", Seed: 3, Point: map[string]string{"load": "0.5"}}); got != "ecn-load=0.5-seed=3" {
		t.Errorf("%q", got)
	}
}
