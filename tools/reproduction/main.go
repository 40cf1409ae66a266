// Command reproduction writes docs/REPRODUCTION.md, docs/tables and the table of claims by paper. It runs in the root of the
// repository (make reproduction).
package main

import (
	"errors"
	"fmt"
	"os"

	"weir/cmd/weir/laws"
	"weir/experiment/reproduction"
	"weir/internal/replace"
)

func main() {
	pages, err := reproduction.Pages(".", laws.All())
	for name, text := range pages {
		err = errors.Join(err, replace.Bytes(name, 0o644, text))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reproduction:", err)
		os.Exit(1)
	}
}
