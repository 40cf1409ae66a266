package claim

import "testing"

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"droptail.mice.fct_ms.p99 / fairq.mice.fct_ms.p99 >= 10":            "p99 completion time of mice under droptail divided by p99 completion time of mice under fairq: at least 10",
		"fairq.bottleneck.drops <= 0.05 * droptail.bottleneck.drops":        "drops of bottleneck under fairq: at most 0.05 times drops of bottleneck under droptail",
		"fairq.loaded.elephants.throughput_mbps >= 165":                     "throughput of elephants in loaded under fairq: at least 165",
		"a[guest_cc=reno,load=0.5].all.drops == 0":                          "drops at all ports under a with guest_cc reno, load 0.5: equal to 0",
		"abs(a.m.fct_ms.mean / b.m.fct_ms.mean - 1) <= 0.15":                "the absolute value of ((mean completion time of m under a divided by mean completion time of m under b) minus 1): at most 0.15",
		"spread(a.tagged.throughput_mbps, competitor) < 5":                  "the spread over competitor of throughput of tagged under a: less than 5",
		"a.flows.by_size.to_10kb.slowdown.p99 < 2":                          "by size: to 10kb slowdown p99 of flows under a: less than 2",
		"fraction_below(a.mice.fct_ms, 20) > min(0.5, a.mice.unfinished)":   "the share below 20 of completion time of mice under a: more than the minimum of 0.5 and unfinished flows of mice under a",
		"first_below(a.tagged.throughput_mbps, load, 0.9) != a.p.marks + 1": "the first load at which throughput of tagged under a falls below 0.9 of its maximum: other than marks of p under a plus 1",
	} {
		c, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Words(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
}
