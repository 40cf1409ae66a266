package attach

import "github.com/cilium/ebpf/btf"

// kernelTypes is the kernel's type information (BTF). It is decoded once for the process, because that takes far longer
// than a load of a program.
var kernelTypes = btf.NewCache()

// KernelTypes returns the kernel's type information, for all who load programs or look types up.
func KernelTypes() *btf.Cache { return kernelTypes }
