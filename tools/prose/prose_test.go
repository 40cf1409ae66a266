package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func theChecker(t *testing.T) *checker {
	t.Helper()
	entries, err := readGlossary(filepath.Join("..", "..", "docs", "tables", "avoided-words.md"))
	if err != nil {
		t.Fatal(err)
	}
	return newChecker(entries)
}

// rulesOf gives the rules that a text breaks, as a comment of Go.
func rulesOf(t *testing.T, text string) []string {
	t.Helper()
	passages, err := goPassages("x.go", "package x\n\n// "+text+"\nvar x int\n")
	if err != nil {
		t.Fatal(err)
	}
	return rulesOfPassages(theChecker(t), passages)
}

func rulesOfPassages(c *checker, passages []passage) []string {
	var out []string
	for i := range passages {
		for _, h := range c.check(&passages[i]) {
			out = append(out, h.Rule)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var sentences = []struct{ text, rules string }{
	// R1, as subject
	{"What is not TCP passes.", "R1"},
	{"What comes and goes is counted.", "R1"},
	{"What does not fit waits for a timeout.", "R1"},
	{"What others send is written at once.", "R1"},
	{"What Weir made is recorded in a table.", "R1"},
	{"What is in it is on the disk.", "R1"},
	{"What is queued, and what is sent while the link is down, is lost.", "R1"},
	{"Whoever reaches the address can try.", "R1"},
	{"Whatever changes the port takes the next number.", "R1"},
	{"Who ends or is killed loses the lock at once.", "R1"},
	{"How many messages lie at a socket decides how many a call moves.", "R1"},
	{"Three figures are read: what the port sends is the first.", "R1"},
	{"The port is closed; who asks gets an error.", "R1"},
	{"But what arrives later is lost.", "R1"},
	// R1, as object in front
	{"Which group it is in, its bucket says.", "R1"},
	{"What os-ken writes, we read.", "R1"},
	// no R1
	{"What does it cost?", ""},
	{"What does the port do?", ""},
	{"When a port has no queue, attach a tbf.", ""},
	{"Where possible, the program waits.", ""},
	{"Where a port has no queue, the program is not attached.", ""},
	{"How a flow is counted: see seats.h.", ""},
	{"What the port sends.", "R1"},
	{"Whatever the bytes, decoding ends with a message or an error.", ""},
	{"Whether the ACK is of a SYN.", ""},
	{"It passes what is not TCP.", ""},
	{"The one who asks must be root.", ""},
	{"what it does, how it works, and when it ends", ""},
	{"why it cannot be managed; nil: it can be", ""},
	// R2
	{"The lot of a flow decides.", "R2"},
	{"There are a lot of flows.", ""},
	{"Each arm has flows.", "R2"},
	{"It arms the timer of the port.", ""},
	{"The process beats every 250 ms.", "R2"},
	{"The kernel is told the rate.", "R2"},
	{"A reader can tell the two apart.", ""},
	{"Windows are held.", "R2"},
	{"Flows are held to the window.", "R2"},
	{"The value is held in a table while the lock is held.", ""},
	{"The table holds 4096 entries.", ""},
	{"The law is held against a model.", "R2"},
	{"The windows are let go.", "R2"},
	{"It lets the windows go.", "R2"},
	{"It lets the caller choose.", ""},
	{"The frame is lent to the law.", "R2"},
	{"No switch is at work here.", "R2"},
	{"The queue is short and the pipe is full.", "R2"},
	{"The socket has a pipe for each side.", ""},
	{"It stands beside the law.", "R2"},
	{"The key `held` and the field held_ratio have their names.", ""},
	{"The value \"held\" is an old name.", ""},
	// R3
	{strings.Repeat("word ", 34) + "word.", ""},
	{strings.Repeat("word ", 35) + "word.", "R3"},
	{strings.Repeat("word ", 30) + "`a`, `b`, `c`, `d`, `e`, `f`, `g`, `h`.", ""},
	// R4
	{"The port is to be closed.", "R4"},
	{"It should be noted that ports close.", "R4"},
	{"By and by the queue grows.", "R4"},
	{"It is counted no more.", "R4"},
	{"It counts flows and no more.", ""},
	{"There are no more flows.", ""},
	// R5
	{"x says whether it is there.", "R5"},
	{"x reports whether it is there.", ""},
	{"The page says whether it is there.", ""},
	// R6
	{"The port closes, and so does who asks.", "R6"},
	{"Found is what was on it.", "R6"},
	{"Of such flows nothing is known.", "R6"},
	{"Of the 91 flows none is fair.", ""},
	{"Found flows are listed.", ""},
	// examples of the rules for how we write
	{"Which arm a connection is in, its lot says.", "R1 R2"},
	{"Who asks has to be root, and so has who answers.", "R1 R6"},
	{"A beat before what takes time: who is taken over from beats no more.", "R1 R2 R4"},
	{"What can be told from its configuration is refused before anything of it is built; what only shows as it goes on is counted, and ends it.", "R1 R2"},
	{"Found is what was on it already of ours.", "R6"},
	{"Whatever time T one takes, the share of answers that are there within T in one world is more than the share within 1.3 T in the other by at most 3 %.", ""},
	{"Kernel 6.9 or later ... what hides it, signs it, or passes elsewhere, is out of reach.", "R1"},
	{"The connection's bucket (a hash, 0-1023) decides whether it is in the treatment or the control group.", ""},
	{"Both ends of the control socket must run as root (SO_PEERCRED); other peers are refused.", ""},
	{"Send a heartbeat before the slow part: the process we replace has stopped sending its own.", ""},
	{"Limits that follow from the configuration are checked before anything is built. The others are counted during the run and stop it when exceeded.", ""},
	{"Found lists the flows, groups and meters that Weir had installed on the switch before.", ""},
	{"The two FCT distributions differ by at most 3 percentage points once 30 % of tolerance in time is allowed.", ""},
	{"Mean FCT = active clients x duration / pages. FairQ keeps 119 of 126 clients active, drop-tail 106, so its mean is higher although both finish in about 13.5 s.", ""},
	{"FairQ needs Linux 6.9. It cannot limit traffic that is tunnelled, signed (TCP-AO, TCP-MD5, AH), or that bypasses the kernel (SR-IOV, DPDK).", ""},
	{"Joined reports that a switch is connected and that this controller is its master.", ""},
	{"port swp1: no queue at its root (found noqueue); set shape: RATE, or add a tbf", ""},
}

func TestRules(t *testing.T) {
	for _, s := range sentences {
		if got := strings.Join(rulesOf(t, s.text), " "); got != s.rules {
			t.Errorf("%q breaks %q; want %q", s.text, got, s.rules)
		}
	}
}

// TestReaders checks which texts of each kind of file are read, and the lines that hits have.
func TestReaders(t *testing.T) {
	const bad = "What is not TCP passes."
	for _, f := range []struct {
		name, path, text string
		line             int // of the hit; 0: none
	}{
		{"comment over two lines", "a.go", "package a\n\n// A comment.\n// What is not\n// TCP passes.\nvar a int\n", 4},
		{"trailing comment", "a.go", "package a\n\nvar a int // " + bad + "\n", 3},
		{"comment without a verb", "a.go", "package a\n\n// What the queue holds, in bytes.\nvar a int\n", 3},
		{"comment that asks", "a.go", "package a\n\n// What does the queue hold?\nvar a int\n", 0},
		{"error", "a.go", "package a\n\nvar a = f(\"what is not TCP passes\")\n", 3},
		{"help over lines", "a.go", "package a\n\nvar a = `Short.\n\nWhat is not\nTCP passes.`\n", 5},
		{"example in help", "a.go", "package a\n\nvar a = `  weir what is not TCP passes  # look`\n", 0},
		{"comment of an example", "a.go", "package a\n\nvar a = `  weir x     # what is not TCP passes`\n", 3},
		{"description in a tag", "a.go", "package a\n\ntype a struct {\n\tb int `jsonschema_description:\"what is not TCP passes\"`\n}\n", 4},
		{"string of a test", "a_test.go", "package a\n\nvar a = \"what is not TCP passes\"\n", 0},
		{"comment of a test", "a_test.go", "package a\n\n// " + bad + "\nvar a int\n", 3},
		{"generated", "a.go", "// Code generated by x; DO NOT EDIT.\n\npackage a\n\n// " + bad + "\nvar a int\n", 0},
		{"preamble of cgo", "a.go", "package a\n\n/*\nint what; // is not TCP passes\n// " + bad + "\nint a;\n*/\nimport \"C\"\n", 5},
		{"line of C", "a.h", "int a; // " + bad + "\n", 1},
		{"block of C", "a.bpf.c", "/* A block.\n * What is not\n * TCP passes.\n */\n", 2},
		{"string of C", "a.c", "char *a = \"// what is not TCP passes\";\n", 0},
		{"SystemVerilog", "a.sv", "wire a; // what is not\n        // TCP passes\n", 1},
		{"YAML", "a.yaml", "a: b # " + bad + "\n", 1},
		{"number sign in YAML", "a.yaml", "a: \"b # what is not TCP passes\"\n", 0},
		{"value of YAML", "a.yaml", "description: \"" + bad + "\"\n", 1},
		{"target of make", "Makefile", "a: b ## what is not TCP passes\n", 1},
		{"page", "a.md", "# Title\n\nText. What is not\nTCP passes.\n", 3},
		{"heading", "a.md", "## What is not TCP passes\n", 0},
		{"fence", "a.md", "```\nWhat is not TCP passes.\n```\n", 0},
		{"code span", "a.md", "The words `what is not TCP passes` are code.\n", 0},
		{"cell", "a.md", "| a | b |\n|---|---|\n| c | what is not TCP passes |\n", 3},
		{"sentence over cells", "a.md", "| what is | not TCP passes |\n|---|---|\n", 0},
		{"item of a list", "a.md", "1. One.\n2. What is not\n   TCP passes.\n", 2},
		{"words to avoid", "a.md", "| word | not |\n|---|---|\n| c | what is not TCP passes |\n", 0},
		{"the table after", "a.md", "| word | not |\n|---|---|\n\n| a | b |\n|---|---|\n| c | what is not TCP passes |\n", 6},
	} {
		passages, err := readText(f.path, f.text)
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		c, line := theChecker(t), 0
		for i := range passages {
			for _, h := range c.check(&passages[i]) {
				if h.Rule == "R1" {
					line = h.Line
				}
			}
		}
		if line != f.line {
			t.Errorf("%s: hit in line %d; want %d", f.name, line, f.line)
		}
	}
}

func TestGlossary_Refuses(t *testing.T) {
	for _, cell := range []string{"lot (a lot)", "lot (but a lot", "lot,, lots"} {
		if got, err := readEntries("R2", "bucket", cell); err == nil {
			t.Errorf("%q is read as %v; want an error", cell, got)
		}
	}
}

// TestPatterns checks how entries of the glossary are found.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		cell, text string
		uses       int
	}{
		{"lot (but a lot)", "the lot of a lot", 1},
		{"let … go", "let go, let it go, let all of them go, let all of the many go", 3},
		{"tell (but tell … apart)", "tell them apart and tell", 1},
	} {
		entries, err := readEntries("R2", "", c.cell)
		if err != nil {
			t.Fatal(err)
		}
		p := passage{}
		p.addLine(c.text, 1)
		var plain []string
		for i := range p.words {
			plain = append(plain, p.words[i].plain())
		}
		if got := len(entries[0].uses(plain)); got != c.uses {
			t.Errorf("%q is found %d times in %q; want %d", c.cell, got, c.text, c.uses)
		}
	}
}

// TestNames checks which names of Go and C have a private word.
func TestNames(t *testing.T) {
	entries, err := readGlossary("../../docs/tables/avoided-words.md")
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker(entries)
	for name, hits := range map[string]bool{
		"seat_at": true, "SeatGoes": true, "segment_lot": true, "LOTS": true, "PortArms": true, "edge_told_at": true, "Untold": true,
		"let_go_q8": true, "LettingGo": true, "BeatAge": true, "bareLent": true, "port_hold": true, "HoldPart": true, "is_held": true,
		"slot_at": false, "bucket_of": false, "weir_fairq_arm": false, "armRTO": false, "arm64": false, "HeartbeatAge": false,
		"allotted": false, "lockHeld": false, "ErrHeld": false, "MinHold": false, "holds": false, "outlet": false, "intellect": false,
	} {
		if got := c.nameRemedy(name) != ""; got != hits {
			t.Errorf("%s: found %t, want %t (parts %q)", name, got, hits, nameParts(name))
		}
	}
	texts := map[string]string{
		"x.go": "package x\n\n// lot\nvar lotOf = `a seat` + \"told\"\n",
		"x.h":  "#include \"seats.h\"\n/* lot\n */\nint lot_of; // told\n",
	}
	for path, line := range map[string]int{"x.go": 4, "x.h": 4} {
		var hits []int
		for _, n := range namesOf(path)(texts[path]) {
			if c.nameRemedy(n.text) != "" {
				hits = append(hits, n.line)
			}
		}
		if !slices.Equal(hits, []int{line}) {
			t.Errorf("%s: hits in lines %v, want %d", path, hits, line)
		}
	}
	if got := nameParts("HTTPTold_at2"); !slices.Equal(got, []string{"http", "told", "at", "2"}) {
		t.Errorf("parts %q", got)
	}
}
