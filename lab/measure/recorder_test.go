package measure

import (
	"testing"
	"time"

	"weir/datapath"
	"weir/datapath/testnet"
)

func TestRecorder_Smoke(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 50_000})
	r, err := Start([]Port{{Name: p.Port.Name, Ifindex: p.Port.Ifindex, Enter: p.Port.Enter, NetnsCookie: p.Switch.Cookie, Sample: true}})
	if err != nil {
		t.Fatal(err)
	}
	t0 := monotonic()
	p.Transfer(t, testnet.ReceiverIPv4, "reno", 4, 500_000)
	end := time.Duration(monotonic() - t0)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	ports, drops, lost := r.Results(t0, end)
	var q datapath.RootQueue
	p.Switch.Must(t, func() (err error) { q, err = datapath.ReadRootQueue(p.Port.Ifindex); return err })
	t.Log(len(ports[0].Samples), ports[0].Samples[len(ports[0].Samples)-1], len(drops), lost, q, r.Costs(), r.OtherDrops(), end)
	if len(drops) != int(q.Drops) {
		t.Error("drops", len(drops), q.Drops)
	}
	if len(drops) > 0 {
		t.Log(drops[0], drops[len(drops)-1])
	}
}
