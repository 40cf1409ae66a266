package switchd

import "testing"

// A port's rate or shape applies whichever of the two the defaults have.
func TestLoad_RateAndShape(t *testing.T) {
	for text, want := range map[string]PortSettings{
		"defaults: {shape: 1Gbit}\nports: [{match: p0, rate: 2Gbit}]\n":  {Rate: 2e9},
		"defaults: {rate: 1Gbit}\nports: [{match: p0, shape: 2Gbit}]\n":  {Rate: 1e9, Shape: 2e9}, // the shaper's rate applies
		"defaults: {shape: 1Gbit}\nports: [{match: p0, shape: 2Gbit}]\n": {Shape: 2e9},
		"defaults: {shape: 1Gbit}\nports: [{match: p0}]\n":               {Shape: 1e9},
	} {
		c, err := testAgent().Parse("f", []byte("kind: Switch\nversion: 2\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		if is := c.Ports[0].PortSettings; is.Rate != want.Rate || is.Shape != want.Shape {
			t.Errorf("%s: rate %v, shape %v", text, is.Rate, is.Shape)
		}
	}
}
