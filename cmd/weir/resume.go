package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// resuming selects the finished runs that --resume keeps.
type resuming string

// The values of --resume.
const (
	resumeNothing resuming = ""
	resumeSame    resuming = "same" // those of the same laws, traffic, and simulator or lab
	resumeAny     resuming = "any"
)

// Set implements pflag.Value. It also accepts true and false, the former values.
func (r *resuming) Set(text string) error {
	switch text {
	case "same", "true":
		*r = resumeSame
	case "any":
		*r = resumeAny
	case "false":
		*r = resumeNothing
	default:
		return fmt.Errorf("%q is not known: use same or any", text)
	}
	return nil
}

func (r *resuming) String() string { return string(*r) }

// Type implements pflag.Value.
func (r *resuming) Type() string { return "same|any" }

// addResume adds --resume to a command.
func addResume(flags *pflag.FlagSet, r *resuming, text string) {
	flags.Var(r, "resume", text+"; =any: also runs of other versions of law, traffic or simulator")
	flags.Lookup("resume").NoOptDefVal = string(resumeSame)
}

// otherCode describes what happens to finished runs of other sources.
func otherCode(others, of int, version string, resume resuming) string {
	text := fmt.Sprintf("%d of %d runs are of another version of law, traffic or simulator (weir %s)", others, of, version)
	if resume == resumeAny {
		return text + ": they are kept, and the report compares them with the others"
	}
	return text + ": they are repeated; --resume=any keeps them"
}
