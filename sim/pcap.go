package sim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"weir/sim/event"
	"weir/sim/network"
)

const (
	// snapBytes is how much of a frame is kept: all its headers, and a little of its payload, which is zeros.
	snapBytes = 128
	// maxCapture bounds one file, in bytes.
	maxCapture = 256 << 20
	// blockBytes is the largest overhead of pcapng for a packet.
	blockBytes = 36
)

// capture writes the packets that leave one port to a pcapng file, with the times when their last bits leave, from t =
// 0.
type capture struct {
	name    string // of the port
	file    *os.File
	w       *pcapgo.NgWriter
	t0      event.Time
	bytes   int64
	packets int64
	missed  int64 // packets after the file was full
	err     error
	b       [snapBytes]byte // zeros after the headers
}

// newCapture opens the file. It writes nothing before begin.
func newCapture(dir, name string, p *network.Port) (*capture, error) {
	c := &capture{name: p.Name, t0: -1}
	var err error
	if c.file, err = os.Create(filepath.Join(dir, name+".pcapng")); err != nil {
		return nil, fmt.Errorf("capture %s: %w", p.Name, err)
	}
	c.w, err = pcapgo.NewNgWriterInterface(c.file, pcapgo.NgInterface{
		Name: p.Name, LinkType: layers.LinkTypeEthernet, SnapLength: snapBytes, TimestampResolution: 9,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "weir, simulated"}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture %s: %w", p.Name, err), c.file.Close())
	}
	p.Tap(c.packet)
	return c, nil
}

func (c *capture) packet(pk *network.Packet, leaves event.Time) {
	switch {
	case c.t0 < 0 || c.err != nil:
		return
	case c.bytes > maxCapture:
		c.missed++
		return
	}
	headers := frame((*[longestHeaders]byte)(c.b[:]), pk)
	n := min(headers+int(pk.Payload()), snapBytes)
	c.err = c.w.WritePacket(gopacket.CaptureInfo{
		Timestamp: time.Unix(0, int64(leaves-c.t0)), CaptureLength: n, Length: int(pk.Bytes()),
	}, c.b[:n])
	c.packets++
	c.bytes += int64(n) + blockBytes
}

// close finishes the file.
func (c *capture) close() error {
	if err := errors.Join(c.err, c.w.Flush(), c.file.Close()); err != nil {
		return fmt.Errorf("capture %s: %w", c.name, err)
	}
	return nil
}
