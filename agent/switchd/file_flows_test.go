package switchd

import (
	"encoding/json"
	"os"
	"testing"

	"weir/datapath/fairq"
)

// A struct tag cannot use a constant: the maximum in the schema must be that of the table.
func TestFile_MaximumOfFlowsIsTheTables(t *testing.T) {
	text, err := os.ReadFile("../../deploy/switch.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			FairQ struct {
				Properties struct{ Flows struct{ Maximum int } }
			} `json:"fairq"`
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if got := schema.Properties.FairQ.Properties.Flows.Maximum; got != fairq.MaxFlows {
		t.Errorf("a file may ask for %d connections, the table has %d at most", got, fairq.MaxFlows)
	}
}
