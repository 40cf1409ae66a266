package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// resuming says which finished runs --resume takes.
type resuming string

// The values of --resume.
const (
	resumeNothing resuming = ""
	resumeSame    resuming = "same" // those of the same laws, traffic and simulator or lab
	resumeAny     resuming = "any"
)

// Set is pflag.Value; true and false are what the flag took when it was one of two.
func (r *resuming) Set(text string) error {
	switch text {
	case "same", "true":
		*r = resumeSame
	case "any":
		*r = resumeAny
	case "false":
		*r = resumeNothing
	default:
		return fmt.Errorf("%q is neither same nor any", text)
	}
	return nil
}

func (r *resuming) String() string { return string(*r) }

// Type is pflag.Value.
func (r *resuming) Type() string { return "same|any" }

// addResume adds --resume to a command.
func addResume(flags *pflag.FlagSet, r *resuming, text string) {
	flags.Var(r, "resume", text+"; =any: also those that another law, traffic or simulator made")
	flags.Lookup("resume").NoOptDefVal = string(resumeSame)
}

// otherCode says what becomes of finished runs that other sources made.
func otherCode(others, of int, version string, resume resuming) string {
	text := fmt.Sprintf("%d of %d runs were made by another law, traffic or simulator (weir %s)", others, of, version)
	if resume == resumeAny {
		return text + ": they are kept, and the report compares them with the others"
	}
	return text + ": they are run again; --resume=any keeps them"
}
