package report

import (
	"bytes"
	"testing"
)

func TestTableLook(t *testing.T) {
	var b bytes.Buffer
	doc := syntheticDocument()
	if err := Table(&b, doc); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}
