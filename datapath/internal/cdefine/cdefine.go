// Package cdefine compares Go with C in tests: constants of headers, and structs that Go reads from maps.
package cdefine

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"testing"
)

// Value returns the number that a header defines as a macro. It fails the test if there is none.
func Value(tb testing.TB, header, name string) uint64 {
	tb.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		tb.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^#define ` + regexp.QuoteMeta(name) + ` (0x[0-9a-fA-F]+|[0-9]+)(?:u|ull)?(?:\s|$)`).FindSubmatch(text)
	if found == nil {
		tb.Fatalf("%s: no number is defined as %s", header, name)
	}
	n, err := strconv.ParseUint(string(found[1]), 0, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// SameLayout fails the test if two structs differ in the names, places or sizes of their fields. generated is one that bpf2go made from C.
func SameLayout(tb testing.TB, generated, own any) {
	tb.Helper()
	fields := func(of any) (all []reflect.StructField) {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if f.Name != "_" {
				all = append(all, f)
			}
		}
		return all
	}
	a, b := fields(generated), fields(own)
	if len(a) != len(b) {
		tb.Fatalf("%T has %d fields, %T has %d", generated, len(a), own, len(b))
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Offset != b[i].Offset || a[i].Type.Size() != b[i].Type.Size() {
			tb.Errorf("%T has %s (%v) at byte %d, %T has %s (%v) at byte %d", generated, a[i].Name, a[i].Type, a[i].Offset, own, b[i].Name, b[i].Type, b[i].Offset)
		}
	}
}
