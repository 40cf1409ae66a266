// Command reproduction writes docs/REPRODUCTION.md, from the root of the repository (make reproduction).
package main

import (
	"fmt"
	"os"

	"weir/experiment/reproduction"
)

func main() {
	page, err := reproduction.Page(".")
	if err == nil {
		err = os.WriteFile(reproduction.PagePath, page, 0o644) //nolint:gosec // a page for everybody
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reproduction:", err)
		os.Exit(1)
	}
}
