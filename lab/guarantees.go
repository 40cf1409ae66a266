package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/law"
	"weir/policy"
	"weir/policy/store"
)

// guarantee writes a policy for each VM with a guarantee, as `weir policy apply` does, and waits until the agents enforce them.
func (c *controlled) guarantee(ctx context.Context, spec *law.Spec, url, keys string, all []experiment.VMGuarantee) error {
	if len(all) == 0 {
		return nil
	}
	var conn *bus.Conn
	err := c.lab.enterController(func() (err error) {
		conn, err = bus.Dial(bus.ClientConfig{URLs: []string{url}, Files: pki.In(keys, "lab")})
		return err
	})
	if err != nil {
		return fmt.Errorf("guarantees: %w", err)
	}
	defer conn.Close()
	limited, stop := context.WithTimeout(ctx, agentsPatience)
	defer stop()
	s := &promises{reader: policy.NewReader(law.Specs{*spec}), specs: law.Specs{*spec}}
	look := time.NewTicker(agentsLook)
	defer look.Stop()
	for {
		err := s.enforced(limited, conn, all)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limited.Done():
			return fmt.Errorf("guarantees: within %v: %w", agentsPatience, err)
		case <-look.C:
		}
	}
}

// promises is the store of policies of a lab's bus.
type promises struct {
	reader *policy.Reader
	specs  law.Specs
	store  *store.Store // nil: not reached yet
	given  bool
}

// enforced writes the policies, unless it has, and returns nil if all are enforced.
func (s *promises) enforced(ctx context.Context, conn *bus.Conn, all []experiment.VMGuarantee) error {
	if s.store == nil {
		kv, err := store.Bus(ctx, conn, 0)
		if err != nil {
			return err
		}
		s.store = store.New(kv, store.Author{Identity: "operator/lab"})
	}
	snap, err := s.store.Read(ctx)
	if err != nil {
		return err
	}
	if !s.given {
		if _, err := s.store.Commit(ctx, snap, store.Apply, policiesOf(all), nil); err != nil {
			return err
		}
		s.given = true
		return errors.New("policies are just written")
	}
	nodes, _, err := s.store.Inventory(ctx)
	lives, _, err2 := s.store.Lives(ctx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	v := policy.View{Specs: s.specs, Policies: snap.Parse(s.reader), Inventory: nodes, Lives: lives, Change: snap.Change, Now: time.Now()}
	state := v.State().Policies
	if len(state) < len(all) {
		return fmt.Errorf("%d of %d policies are in the store", len(state), len(all))
	}
	for _, p := range state {
		if p.Condition != policy.Enforced {
			return fmt.Errorf("policy %s is %s: %s", p.Name, p.Condition, p.Reason)
		}
	}
	return nil
}

func policiesOf(all []experiment.VMGuarantee) (out []store.Text) {
	for i, g := range all {
		var says []string
		if g.Rate > 0 {
			says = append(says, fmt.Sprintf("rate: %v", g.Rate))
		}
		if g.Weight > 0 {
			says = append(says, fmt.Sprintf("weight: %d", g.Weight))
		}
		name := fmt.Sprintf("guarantee%d", i+1)
		text := fmt.Sprintf("kind: Policy\nversion: 1\nname: %s\nselect: {vms: {names: [%q]}}\nguarantee: {%s}\n", name, g.VM, strings.Join(says, ", "))
		out = append(out, store.Text{Name: name, Text: []byte(text)})
	}
	return out
}
