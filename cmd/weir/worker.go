package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/remote"
	"weir/experiment/store"
	"weir/lab"
	"weir/sim"
)

// workerFlags are the flags of `weir worker`.
type workerFlags struct {
	urls   []string
	keys   string
	slots  int
	lab    bool
	asJSON bool
}

func workerCommand() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker --bus URL",
		Short: "Carry out runs of experiments for other machines",
		Long: `Take runs that 'weir run --on URL' and 'weir figures --on URL' put on the message bus, carry
them out in the simulator, one per processor, and send the measurements back. It works until it is
stopped. A run whose worker is stopped or killed goes to another worker.

Workers get the runs of their own build only: with the same sources of laws, traffic and simulator.
So the measurements are those that the other machine would have got.

With --lab it also carries out runs in the lab, as root, one at a time and alone.`,
		Example: `  weir bus enrol worker/w1 --out w1
  weir worker --bus tls://10.0.0.5:4222 --keys w1`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(f.urls) == 0:
				return usageError(errors.New("worker needs --bus URL: the address of the message bus, tls://ADDRESS:PORT"))
			case f.slots < 1 || f.slots > 256:
				return usageError(fmt.Errorf("--jobs %d is out of range: use 1 to 256", f.slots))
			}
			return f.work(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.urls, "bus", nil, "`URL` of the message bus, tls://ADDRESS:PORT; repeat it for more servers")
	addKeys(flags, &f.keys, "")
	flags.IntVar(&f.slots, "jobs", min(runtime.GOMAXPROCS(0), 256), "`NUMBER` of simulated runs at a time")
	flags.BoolVar(&f.lab, "lab", false, "also carry out runs in the lab")
	flags.BoolVar(&f.asJSON, "log-json", false, "log in JSON, one object per line")
	return cmd
}

func (f *workerFlags) work(cmd *cobra.Command) error {
	if f.lab {
		if err := lab.CheckHost(); err != nil {
			return fmt.Errorf("--lab: %w", err)
		}
	}
	log := newLog(cmd.ErrOrStderr(), f.asJSON)
	client, err := clientOf(f.urls, f.keys, log)
	if err != nil {
		return err
	}
	worlds := map[string]experiment.World{experiment.WorldSim: &sim.World{Laws: laws.Sim()}}
	if f.lab {
		worlds[experiment.WorldLab] = &lab.World{Laws: laws.Lab(), Controller: labProgram("controller"), Agent: labProgram("agent", "--unpinned")}
	}
	codes := map[string]string{}
	for world := range worlds {
		if codes[world], err = codeOf(world); err != nil {
			return err
		}
	}
	log.Info("the worker begins", "weir", weirVersion(), "codes", codes, "jobs", f.slots)
	return remote.Work(cmd.Context(), remote.WorkerConfig{
		Client: client, Weir: weirVersion(), Codes: codes, Slots: f.slots, Laws: laws.All(), Log: log,
		Do: func(ctx context.Context, r *experiment.Run, p experiment.Progress) (*store.Entry, error) {
			w := worlds[r.World]
			if err := w.Check(r); err != nil {
				if r.World == experiment.WorldLab { // another machine may have what this one lacks
					err = fmt.Errorf("%w: %w", remote.ErrUnfit, err)
				}
				return nil, err
			}
			return carryOutRun(ctx, w, codes[r.World], r, p)
		},
	})
}
