package openflow_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	of "weir/openflow"
	"weir/openflow/oftest"
)

// writeCapture writes messages as one TCP connection to a controller, a message a segment.
func writeCapture(t *testing.T, file string, messages [][]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	seq := uint32(1)
	for i, m := range messages {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IPv4(10, 0, 0, 1), DstIP: net.IPv4(10, 0, 0, 2)}
		tcp := &layers.TCP{SrcPort: 40000, DstPort: 6653, Seq: seq, Ack: 1, ACK: true, PSH: true, Window: 65535}
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4},
			ip, tcp, gopacket.Payload(m)); err != nil {
			t.Fatal(err)
		}
		info := gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(buf.Bytes()), Length: len(buf.Bytes())}
		if err := w.WritePacket(info, buf.Bytes()); err != nil {
			t.Fatal(err)
		}
		seq += uint32(len(m))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// pdml is one field or protocol of tshark's XML.
type pdml struct {
	Name     string `xml:"name,attr"`
	Value    string `xml:"value,attr"`
	Unmasked string `xml:"unmaskedvalue,attr"`
	Pos      int    `xml:"pos,attr"`
	Fields   []pdml `xml:"field"`
}

type pdmlPacket struct {
	Protos []pdml `xml:"proto"`
}

// Each message is to tshark what it is to us: the same fields with the same values in the same order. Data without a
// meaning to either is not compared, nor what tshark is known to be wrong about.
func TestTsharkReads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short (make check): starts other programs for a minute; make test runs it")
	}
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("no tshark: nothing was compared (on Debian: apt install tshark)")
	}
	var messages []of.Message
	var wire [][]byte
	same, left := map[string]int{}, map[string]int{}
	for _, b := range oftest.KnownCorpus(*each) {
		_, m, err := of.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if why := tsharkCannotRead(m); why != "" {
			left[name(m)+": "+why]++
			continue
		}
		messages, wire = append(messages, m), append(wire, b)
	}
	file := filepath.Join(t.TempDir(), "messages.pcap")
	writeCapture(t, file, wire)
	cmd := exec.CommandContext(t.Context(), tshark, "-r", file, "-T", "pdml", "-J", "openflow_v4", "-d", "tcp.port==6653,openflow")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	d := xml.NewDecoder(bytes.NewReader(out))
	for i := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if i != len(messages) {
				t.Errorf("tshark gives %d of %d messages", i, len(messages))
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "packet" {
			continue
		}
		var p pdmlPacket
		if err := d.DecodeElement(&p, &start); err != nil {
			t.Fatal(err)
		}
		if i == len(messages) {
			t.Fatal("tshark gives more packets than were written")
		}
		want, got := tsharkWants(messages[i]), tsharkGives(&p)
		if messages[i].MessageType() == of.TypeError && len(got) > len(want) {
			got = got[:len(want)] // it goes on with the message that was refused
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%x\n%s\nours -, tshark's +: %s", wire[i], messages[i], diff)
		} else {
			same[name(messages[i])]++
		}
		i++
	}
	report(t, "messages are the same to tshark", same)
	report(t, "messages are left out", left)
}

// tsharkGives lists what tshark says of a message, by our names.
func tsharkGives(p *pdmlPacket) []string {
	var list []string
	seen := map[int]bool{} // where fields were that it shows in parts
	for i := range p.Protos {
		if p.Protos[i].Name == "openflow_v4" {
			list = appendPDML(list, &p.Protos[i], seen)
		}
	}
	return list
}

func appendPDML(list []string, f *pdml, seen map[int]bool) []string {
	for i := range f.Fields {
		k := &f.Fields[i]
		if f.Name != "openflow_v4" && strings.HasPrefix(k.Name, f.Name+".") {
			continue // a bit of what was listed
		}
		if name := tsharkName(k.Name); name != "" {
			value := k.Value
			if k.Unmasked != "" {
				value = k.Unmasked
			}
			if !strings.HasPrefix(name, "oxm_value") || !seen[k.Pos] {
				list = append(list, name+"="+trimHex(value))
			}
			seen[k.Pos] = true
		}
		list = appendPDML(list, k, seen)
	}
	return list
}
