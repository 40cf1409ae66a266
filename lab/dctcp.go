package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf/link"
)

const (
	dctcpCC = "dctcp"
	// dctcpName is the program's name in the object. Names are the kernel's, not a namespace's, so that of a process has its number.
	dctcpName = "weir_dctcp00000"
)

// ownDCTCP is DCTCP as a kernel program of this process, for kernels that are built without it.
type ownDCTCP struct {
	mu     sync.Mutex
	name   string
	loaded link.Link
}

// register returns the name under which the kernel knows DCTCP while this process lives. It registers it first, if that was not done.
func (d *ownDCTCP) register() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded != nil {
		return d.name, nil
	}
	spec, err := loadDctcp()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s%05d", dctcpName[:len(dctcpName)-5], os.Getpid()%100_000)
	if err := rename(spec.Maps["weir_dctcp"].Contents[0].Value, name); err != nil {
		return "", err
	}
	var objects dctcpObjects
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return "", fmt.Errorf("load DCTCP: %w", err)
	}
	defer objects.Close()
	if d.loaded, err = link.AttachStructOps(link.StructOpsOptions{Map: objects.WeirDctcp}); err != nil {
		return "", fmt.Errorf("register DCTCP: %w", err)
	}
	d.name = name
	return name, nil
}

// rename writes the name into the value of a struct_ops map.
func rename(value any, name string) error {
	data, _ := value.([]byte)
	at := bytes.Index(data, []byte(dctcpName))
	if at < 0 {
		return errors.New("the kernel program has no name")
	}
	copy(data[at:], name)
	return nil
}

// close ends the registration. Connections that use it keep it.
func (d *ownDCTCP) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == nil {
		return nil
	}
	err := d.loaded.Close()
	d.loaded = nil
	return err
}
