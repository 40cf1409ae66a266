package switchd

import (
	"encoding/json"
	"os"
	"testing"

	"weir/datapath/fairq"
)

// A tag cannot name a constant: the most connections that a file may ask for are those that the table takes.
func TestFile_FlowsAreTheTables(t *testing.T) {
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
