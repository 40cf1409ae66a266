package fairq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// begin writes what all ports share: the layout's version, the lease, the first heartbeat, the scope.
func (f *Attachment) begin() error {
	var c fairqControl
	if err := f.maps.Controls.Lookup(uint32(0), &c); err != nil {
		return fmt.Errorf("read control: %w", err)
	}
	c.Schema, c.HeartbeatNs, c.LeaseNs, c.Releasing = schemaVersion, attach.MonotonicNs(), uint64(f.cfg.Lease), 0
	if f.cfg.Watch || f.cfg.Observe {
		c.Watched = 1
	}
	c.IdleSweeps = uint32(f.cfg.Forget / HeartbeatInterval)
	if c.Seed == [2]uint64{} { // a process that takes over keeps the seed, so that flows stay in their groups
		for i := range c.Seed {
			c.Seed[i] = rand.Uint64()
		}
	}
	if err := f.maps.Controls.Put(uint32(0), c); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return f.setScope()
}

// setScope makes the prefixes in the kernel those of the configuration: it adds first, and removes afterwards.
func (f *Attachment) setScope() error {
	want := map[fairqScopeKey]uint32{}
	// IPv4 addresses are mapped into IPv6 here, but a prefix of IPv6 does not include them.
	ipv4, mapped := scopeKey(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff})
	for _, p := range f.cfg.Scope {
		if p.Bits() < 96 && p.Contains(mapped) {
			want[ipv4] = 0
		}
	}
	for _, p := range f.cfg.Scope {
		want[scopeKey(p)] = 1
	}
	for k, in := range want {
		if err := f.maps.Scope.Put(k, in); err != nil {
			return fmt.Errorf("enter a prefix of the scope: %w", err)
		}
	}
	var k fairqScopeKey
	var v uint32
	var stale []fairqScopeKey
	entries := f.maps.Scope.Iterate()
	for entries.Next(&k, &v) {
		if _, ok := want[k]; !ok {
			stale = append(stale, k)
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the scope: %w", err)
	}
	for _, k := range stale {
		if err := f.maps.Scope.Delete(k); err != nil {
			return fmt.Errorf("remove a prefix of the scope: %w", err)
		}
	}
	return nil
}

// scopeKey returns the prefix as struct scope_key has it: IPv4 as ::ffff:a.b.c.d.
func scopeKey(p netip.Prefix) fairqScopeKey {
	p = p.Masked()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	k := fairqScopeKey{PrefixLength: uint32(bits)}
	a := p.Addr().As16()
	for i := range k.Address {
		k.Address[i] = uint32(a[4*i]) | uint32(a[4*i+1])<<8 | uint32(a[4*i+2])<<16 | uint32(a[4*i+3])<<24
	}
	return k
}

// Heartbeat shows the kernel programs that user space runs, removes connections that ended, and has a parking made again that
// somebody has removed. It returns ErrTakenOver when another process asks for the pins: then call Leave. One goroutine may call Heartbeat
// while another calls the rest, until Detach, Close or Leave.
func (f *Attachment) Heartbeat() error {
	if err := f.heartbeatAndSweep(); err != nil {
		return err
	}
	f.restoreParks()
	return nil
}

func (f *Attachment) heartbeatAndSweep() error {
	f.shared.Lock()
	defer f.shared.Unlock()
	if f.lock != nil {
		if claimed, err := f.lock.Claimed(); err != nil || claimed {
			return errors.Join(err, takenOver(claimed))
		}
	}
	if err := f.changeControl(heartbeatNow); err != nil {
		return err
	}
	return f.sweep()
}

func takenOver(claimed bool) error {
	if claimed {
		return attach.ErrTakenOver
	}
	return nil
}

func (f *Attachment) heartbeat() error { return f.setControl(heartbeatNow) }

func heartbeatNow(c *fairqControl) { c.HeartbeatNs = attach.MonotonicNs() }

// Run sends heartbeats until ctx is done.
func (f *Attachment) Run(ctx context.Context) error {
	ticker := time.NewTicker(HeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := f.Heartbeat(); err != nil {
				return err
			}
		}
	}
}

// setControl changes the control entry.
func (f *Attachment) setControl(change func(*fairqControl)) error {
	f.shared.Lock()
	defer f.shared.Unlock()
	return f.changeControl(change)
}

// changeControl is setControl for a caller that has locked f.shared. The sweep number of the entry is the
// kernel's: a sweep runs only under that lock.
func (f *Attachment) changeControl(change func(*fairqControl)) error {
	var c fairqControl
	if err := f.maps.Controls.Lookup(uint32(0), &c); err != nil {
		return fmt.Errorf("read control: %w", err)
	}
	change(&c)
	if err := f.maps.Controls.Put(uint32(0), c); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}

// syscallResult runs one of the programs that user space runs, with arg as its context.
func syscallResult(p *ebpf.Program, arg any) error {
	result, err := p.Run(&ebpf.RunOptions{Context: arg})
	if err != nil {
		return err
	}
	if result != 0 {
		return fmt.Errorf("returned %d (%w)", int32(result), unix.Errno(-int32(result)))
	}
	return nil
}

// From Linux 6.18 on, the kernel allocates a timer without waiting for a lock, and fails if another CPU has
// locked it. The lock is released within microseconds, or when the thread that has it runs again.
const (
	armTries = 50
	armPause = 10 * time.Millisecond
)

// untilMemory calls run until it succeeds in allocating memory. After armTries it returns run's error.
func untilMemory(run func() error) error {
	err := run()
	for n := 1; n < armTries && errors.Is(err, unix.ENOMEM); n++ {
		time.Sleep(armPause)
		err = run()
	}
	return err
}

func (f *Attachment) arm(id uint32) error {
	err := untilMemory(func() error { return syscallResult(f.control.Arm, fairqPortArg{Id: id}) })
	if err != nil {
		return fmt.Errorf("start the timer of port %d: %w", id, err)
	}
	return nil
}

func (f *Attachment) disarm(id uint32) error {
	result, err := f.control.Disarm.Run(&ebpf.RunOptions{Context: fairqPortArg{Id: id}})
	if err != nil {
		return fmt.Errorf("stop the timer of port %d: %w", id, err)
	}
	if e := int32(result); e < 0 && unix.Errno(-e) != unix.EINVAL { // EINVAL: it has no timer
		return fmt.Errorf("stop the timer of port %d: %w", id, unix.Errno(-e))
	}
	return nil
}

// clear ends what a port grants. With all it also begins the port's state afresh, for another port.
func (f *Attachment) clear(id uint32, all bool) error {
	arg := fairqPortClearArg{Id: id}
	if all {
		arg.All = 1
	}
	if err := syscallResult(f.control.Clear, arg); err != nil {
		return fmt.Errorf("clear port %d: %w", id, err)
	}
	return nil
}

func (f *Attachment) sweep() error {
	watched, err := f.watched()
	if err != nil {
		return err
	}
	if err := syscallResult(f.control.Sweep, fairqSwept{Watched: watched}); err != nil {
		return fmt.Errorf("sweep the flow table: %w", err)
	}
	return nil
}
