package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"runtime/debug"
	"strings"

	"weir/agent/agentd"
	"weir/bus"
	"weir/controller"
	"weir/datapath"
	"weir/datapath/core"
	"weir/datapath/native"
	"weir/deadline"
	"weir/experiment"
	"weir/lab"
	"weir/law"
	"weir/sim"
)

// sources are files that the results of a run depend on.
type sources struct {
	name  string
	files fs.FS
}

// dependsOn lists, by world, the sources on which a run's measurements depend: laws, hosts, network, traffic. They are
// embedded in this program from the tree that it was built from. Sources that only read files or sum up results are
// left out: a run's key and its raw measurements do not depend on them.
var dependsOn = map[string][]sources{
	experiment.WorldSim: {
		{"datapath/core", core.Headers}, {"datapath/native", sub(datapath.Sources, "native")},
		{"experiment", experiment.Sources}, {"sim", sim.Sources}, {"law", law.Sources},
	},
	experiment.WorldLab: {
		{"datapath/core", core.Headers}, {"datapath", datapath.Sources}, {"experiment", experiment.Sources},
		{"lab", lab.Sources}, {"controller", controller.Sources}, {"bus", bus.Sources},
		{"agent/agentd", agentd.Sources}, {"deadline", deadline.Sources}, {"law", law.Sources},
	},
}

// labModules are third-party modules that run as guests in the lab.
var labModules = []string{"gvisor.dev/gvisor"}

// codeOf returns a digest of the sources of a world. It is equal for two builds whose runs can be compared.
func codeOf(world string) (string, error) { return codeOfBuild(world, native.Built) }

// codeOfBuild is codeOf for a build with cgo or without. Without it the simulator lacks laws, from the same sources.
func codeOfBuild(world string, cgo bool) (string, error) {
	var more []string
	if !cgo && world == experiment.WorldSim {
		more = append(more, "without cgo")
	}
	if info, ok := debug.ReadBuildInfo(); ok && world == experiment.WorldLab {
		for _, m := range info.Deps {
			for _, name := range labModules {
				if m.Path == name {
					more = append(more, m.Path+" "+m.Version)
				}
			}
		}
	}
	return digestOf(dependsOn[world], more...)
}

// digestOf hashes files by name and content, without tests, and more strings.
func digestOf(list []sources, more ...string) (string, error) {
	hash := sha256.New()
	add := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		hash.Write(size[:])
		hash.Write(b)
	}
	for _, s := range list {
		err := fs.WalkDir(s.files, ".", func(file string, d fs.DirEntry, err error) error { // in the order of names
			if err != nil || d.IsDir() || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(s.files, file)
			if err != nil {
				return err
			}
			add([]byte(path.Join(s.name, file)))
			add(text)
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("digest of the sources of %s: %w", s.name, err)
		}
	}
	for _, text := range more {
		add([]byte(text))
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// sub returns the part of an embedded tree below dir, which exists.
func sub(files fs.FS, dir string) fs.FS {
	out, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // dir is a constant
	}
	return out
}
