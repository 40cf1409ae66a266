// Command reproduction writes docs/REPRODUCTION.md, docs/tables and the table of claims by paper. It runs in the root of the
// repository (make reproduction).
package main

import (
	"errors"
	"fmt"
	"os"

	"weir/cmd/weir/laws"
	"weir/experiment/reproduction"
)

func main() {
	pages, err := reproduction.Pages(".", laws.All())
	for name, text := range pages {
		err = errors.Join(err, os.WriteFile(name, text, 0o644)) //nolint:gosec // pages for everybody
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reproduction:", err)
		os.Exit(1)
	}
}
