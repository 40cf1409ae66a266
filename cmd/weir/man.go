package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a man page for each command",
		Long: `Write a man page for each command into DIR, which is created. The pages have the --help texts.
With SOURCE_DATE_EPOCH (seconds since 1970) set, the same build writes the same bytes.`,
		Hidden: true, // for packagers of Weir
		Args:   usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := sourceDate(time.Now())
			if err != nil {
				return usageError(err)
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			root := cmd.Root()
			plain(root)
			header := &doc.GenManHeader{Section: "1", Date: &date, Source: "weir " + weirVersion(), Manual: "Weir"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return nil
		},
	}
}

// sourceDate returns the date of the pages: that of the sources, if SOURCE_DATE_EPOCH is set.
func sourceDate(now time.Time) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return now.UTC(), nil
	}
	s, err := strconv.ParseInt(text, 10, 64)
	if err != nil || s < 0 {
		return now, fmt.Errorf("SOURCE_DATE_EPOCH=%s is not a number of seconds since 1970", text)
	}
	return time.Unix(s, 0).UTC(), nil
}

// plain escapes the texts of a command and those below it for Markdown, from which man pages are made.
func plain(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	cmd.Hidden = cmd.Hidden || cmd.Name() == "powershell" // added by cobra; Weir runs on Linux
	if cmd.Long == "" {
		cmd.Long = cmd.Short + "."
	}
	cmd.Long, cmd.Short = asMarkdown(cmd.Long), asMarkdown(cmd.Short)
	cmd.Use = asMarkdown(cmd.Use)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		f.Usage = asMarkdown(f.Usage)
	})
	for _, c := range cmd.Commands() {
		plain(c)
	}
}

// special are the characters with a meaning in Markdown.
var special = regexp.MustCompile("[\\\\`*_{}\\[\\]<>#+!|~]")

// asMarkdown escapes a text so that Markdown shows it unchanged; indented lines are code in both.
func asMarkdown(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			lines[i] = "    " + strings.TrimLeft(l, " ")
			continue
		}
		lines[i] = special.ReplaceAllString(l, `\$0`)
	}
	return strings.Join(lines, "\n")
}
