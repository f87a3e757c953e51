package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "explain",
		Usage: "[<request-id>] [--address <interface>]",
		Short: "Tells why a request waited and why it went where it went",
		Long: `
Asks a running instance for the decision about a request, and prints it: what
each policy said of each candidate, how long the request waited, and how each
attempt ended. The ID of a request stands in the header X-Usher-Request-Id of
its answer. Without an ID it prints the last decision.

The last 1000 decisions are kept in memory, and fewer with thousands of
candidates.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Args = cobra.MaximumNArgs(1)
			address := addressFlag(cmd)
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				id := ""
				if len(args) > 0 {
					id = args[0]
				}
				d, err := fetchDecision(*address, id)
				if err != nil {
					return err
				}
				explain(cmd.OutOrStdout(), d)
				return nil
			}
		},
	})
}

// fetchDecision asks the admin API for a decision, or for the last one if id
// is empty.
func fetchDecision(address, id string) (*decision, error) {
	path := "/usher/decisions"
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	answer, err := askAdmin(address, http.MethodGet, path, "")
	if err != nil {
		return nil, err
	}
	if id != "" {
		var d decision
		return &d, json.Unmarshal(answer, &d)
	}
	var last []*decision
	if err := json.Unmarshal(answer, &last); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(last) == 0 {
		return nil, errors.New("no request has been decided on yet")
	}
	return last[0], nil
}

// explain prints a decision for people.
func explain(out io.Writer, d *decision) {
	fmt.Fprintln(out, printable(fmt.Sprintf("request %s%s: %s %s%s", d.ID, d.by(), d.Operation, d.Model, d.manner())))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, l := range d.lines() { // Flush tells
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", printable(l.what), l.took, printable(l.who), printable(l.how))
	}
	if err := w.Flush(); err != nil {
		fmt.Fprintln(out, err)
	}
}

// printable returns s with a space for each character that a terminal might obey
// in place of showing it: callers, providers and policies choose words freely.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// A line of an explanation tells one thing that happened.
type line struct {
	at                   milliseconds
	what, took, who, how string
}

// lines tells what happened, in its order.
func (d *decision) lines() []line {
	var lines []line
	for _, s := range d.Selections {
		l := line{at: s.At, what: "select " + s.Policy, took: s.Duration.String()}
		if s.Error != "" {
			l.how = "failed: " + s.Error
			lines = append(lines, l)
		}
		for _, v := range s.Verdicts {
			l.who, l.how = v.Candidate, v.explain(d.Time)
			lines = append(lines, l)
			l.what, l.took = "", ""
		}
	}
	for _, a := range d.Admissions {
		lines = append(lines, line{a.At, "admit " + a.Policy, a.Duration.String(), a.Candidate, a.explain()})
	}
	for _, a := range d.Attempts {
		lines = append(lines, line{a.At, fmt.Sprintf("attempt %d", a.Attempt), a.Duration.String(), a.Candidate, a.explain()})
	}
	for _, f := range d.Fallbacks {
		lines = append(lines, line{at: f.At, what: "fallback", who: f.Model})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	if d.Omitted > 0 {
		lines = append(lines, line{how: fmt.Sprintf("(%d more selections and admissions are not kept)", d.Omitted)})
	}
	return append(lines, line{what: "end", took: d.Duration.String(), how: d.end()})
}

// String returns m with three digits, such as "0.055 ms", "1.23 s" or "20m0s".
func (m milliseconds) String() string {
	d := time.Duration(float64(m) * float64(time.Millisecond))
	switch {
	case m < 999.5:
		return fmt.Sprintf("%.3g ms", float64(m))
	case d < 10*time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func (d *decision) by() string {
	if d.Caller == "" {
		return ""
	}
	if d.Group == "" {
		return " by " + d.Caller
	}
	return fmt.Sprintf(" by %s (%s)", d.Caller, d.Group)
}

func (d *decision) manner() string {
	var s string
	if d.Stream {
		s += ", streamed"
	}
	if d.Priority != 0 {
		s += fmt.Sprintf(", priority %d", d.Priority)
	}
	return s
}

func (d *decision) end() string {
	if d.Refusal != "" && d.Status < http.StatusBadRequest {
		return "ended for " + d.Refusal
	}
	if d.Refusal != "" {
		return fmt.Sprintf("refused with %d: %s", d.Status, d.Refusal)
	}
	if d.Status == 0 {
		return "no answer: " + string(d.Disposition)
	}
	return fmt.Sprintf("answered %d: %s", d.Status, d.Disposition)
}

func (v verdictRecord) explain(at time.Time) string {
	s := string(v.Verdict)
	if v.Reason != "" {
		s += ": " + string(v.Reason)
	}
	if v.Detail != "" {
		s += " (" + v.Detail + ")"
	}
	if v.Limit != 0 {
		s += fmt.Sprintf(", %g of %g", v.Observed, v.Limit)
	}
	if v.Until != nil {
		s += fmt.Sprintf(", until %s (%s)", v.Until.Local().Format(time.TimeOnly), v.Until.Sub(at).Round(time.Millisecond))
	}
	return s
}

func (a admissionRecord) explain() string {
	var s []string
	if a.Waited {
		waited := "waited"
		if a.Position > 0 {
			waited += fmt.Sprintf(" from place %d", a.Position)
		}
		s = append(s, waited)
	}
	switch {
	case a.Error != "":
		s = append(s, "failed: "+a.Error)
	case a.Rejected != "":
		s = append(s, "rejected: "+string(a.Rejected))
	case a.Moved:
		s = append(s, "moved to other candidates")
	default:
		s = append(s, "admitted")
	}
	return strings.Join(s, ", ")
}

func (a attemptRecord) explain() string {
	s := string(a.Disposition)
	if a.Status != 0 {
		s = fmt.Sprintf("%d %s", a.Status, s)
	}
	if a.Error != "" {
		s += " (" + a.Error + ")"
	}
	if a.Until != nil {
		s += ", until " + a.Until.Local().Format(time.TimeOnly)
	}
	if a.NoRetry != "" {
		s += ", no retry: " + a.NoRetry
	}
	if a.FirstEvent > 0 {
		s += ", first content after " + a.FirstEvent.String()
	}
	if a.Usage != nil {
		s += fmt.Sprintf(", %d + %d tokens", a.Usage.InputTokens, a.Usage.OutputTokens)
	}
	return s
}
