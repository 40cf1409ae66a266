package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/agent/switchd"
	fairqswitch "weir/agent/switchd/fairq"
)

func TestReadObject(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       kernelObject
		ok         bool
	}{
		{"map", "pos:\t0\nflags:\t02000002\nmap_type:\t1\nmax_entries:\t65536\nmemlock:\t1048576\nmap_id:\t7\nfrozen:\t0\n", kernelObject{"map", 7, 65536, 1048576}, true},
		{"program", "prog_type:\t3\nprog_jited:\t1\nmemlock:\t4096\nprog_id:\t9\n", kernelObject{"prog", 9, 0, 4096}, true},
		{"link of a program", "link_type:\ttcx\nlink_id:\t3\nprog_id:\t9\n", kernelObject{}, false},
		{"another file", "pos:\t0\nflags:\t0100002\nmnt_id:\t15\n", kernelObject{}, false},
	} {
		got, ok, err := readObject(strings.NewReader(c.text))
		if err != nil || ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v %v %v", c.name, got, ok, err)
		}
	}
	if _, _, err := readObject(strings.NewReader("memlock:\tmuch\n")); err == nil {
		t.Error("a memory that is no number is no error")
	}
}

func TestProcess(t *testing.T) {
	if d, err := processTime(os.Getpid()); err != nil || d <= 0 {
		t.Errorf("processor time: %v, %v", d, err)
	}
	if b, err := memoryOf(os.Getpid(), "VmRSS"); err != nil || b < 1<<20 {
		t.Errorf("memory: %v, %v", b, err)
	}
}

// The generated file has the expected size, and the reader accepts it.
func TestManyPorts(t *testing.T) {
	text := manyPorts(fileEntries)
	if n := strings.Count(text, "match:"); n != fileEntries {
		t.Errorf("%d entries", n)
	}
	path := filepath.Join(t.TempDir(), "switch.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := switchd.New(fairqswitch.Law{}).Load(path); err != nil {
		t.Errorf("refused: %.300s", err)
	}
}

func TestConnectionsIn(t *testing.T) {
	n, err := connectionsIn([]byte(`{"switches":[{"name":"a","ports":[{"connections":3},{"connections":4}]}]}`))
	if n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", `{"switches":[]}`, `{"switches":[{"ports":[]}]}`} {
		if n, err := connectionsIn([]byte(text)); err == nil {
			t.Errorf("%q: %d and no error", text, n)
		}
	}
}
