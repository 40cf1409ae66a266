package host

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/law"
)

// OwnerSlot is an owner's entry in the pinned tables of a host, for a process that sends heartbeats and grants through
// another one.
type OwnerSlot struct {
	owners *ebpf.Map
	owner  law.Owner
}

// OpenOwner opens the entry of an owner in the tables pinned in dir. Errors: fs.ErrNotExist, *attach.OtherSchema, or the
// kernel's.
func OpenOwner(dir string, o law.Owner) (*OwnerSlot, error) {
	if o >= Owners {
		return nil, fmt.Errorf("host: owner %d: 0 to %d", o, Owners-1)
	}
	if err := attach.CheckSchema(dir, hostMapControls, schemaVersion); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, hostMapOwners), nil)
	if err != nil {
		return nil, fmt.Errorf("host: open the owners of %s: %w", dir, err)
	}
	return &OwnerSlot{m, o}, nil
}

// Heartbeat shows that the owner runs. Unlike Host.Heartbeat it does not remove earlier grants.
func (s *OwnerSlot) Heartbeat() error {
	if err := s.owners.Put(uint32(s.owner), hostGrantOwner{HeartbeatNs: attach.MonotonicNs()}); err != nil {
		return fmt.Errorf("host: heartbeat of owner %d: %w", s.owner, err)
	}
	return nil
}

// Close closes the table. The grants of the owner expire.
func (s *OwnerSlot) Close() error { return s.owners.Close() }
