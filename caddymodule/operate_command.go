package caddymodule

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "policy",
		Usage: "<policy> [<command> [<json>]] [--address <interface>]",
		Short: "Asks a policy what it knows, or corrects it",
		Long: `
Sends a command to a policy of a running instance, and prints what it answers.
Which commands there are, and what JSON they take, is in the documentation of
the policy; all know "status", which changes nothing and is the default.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Args = cobra.RangeArgs(1, 3)
			address := addressFlag(cmd)
			raw := cmd.Flags().Bool("json", false, "Print the answer as JSON")
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				args = append(args, make([]string, 3-len(args))...)
				answer, err := operate(*address, args[0], cmp.Or(args[1], statusCommand), args[2])
				if err != nil {
					return err
				}
				if *raw {
					_, err = cmd.OutOrStdout().Write(answer)
					return err
				}
				return printOperated(cmd.OutOrStdout(), answer)
			}
		},
	})
}

// OperateCommand returns a subcommand that sends a command without input to a
// policy of a running instance, and prints what it answers.
func OperateCommand(policyName, command, short string) *cobra.Command {
	cmd := &cobra.Command{Use: command, Short: short, Args: cobra.NoArgs}
	address := addressFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := operate(*address, policyName, command, "")
		if err != nil {
			return err
		}
		return printOperated(cmd.OutOrStdout(), answer)
	}
	return cmd
}

// operate sends a command to a policy and returns the answer of the admin API.
func operate(address, policyName, command, input string) ([]byte, error) {
	path := "/usher/policies/" + url.PathEscape(policyName) + "/" + url.PathEscape(command)
	return askAdmin(address, http.MethodPost, path, input)
}

// printOperated prints the answer to a command for people.
func printOperated(out io.Writer, answer []byte) error {
	var all operated
	if err := json.Unmarshal(answer, &all); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var b bytes.Buffer
	for _, one := range all.Instances {
		at := ""
		if len(all.Instances) > 1 {
			fmt.Fprintf(&b, "%s (%s):\n", one.Instance, strings.Join(one.At, ", "))
			at = "  "
		}
		switch {
		case one.Error != "":
			fmt.Fprintf(&b, "%srefused: %s\n", at, printable(one.Error))
		case len(one.Output) == 0:
			fmt.Fprintf(&b, "%sdone\n", at)
		default:
			printJSON(&b, at, gjson.ParseBytes(one.Output))
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// printJSON prints a JSON value for people: an object as lines, a list of
// objects as a table.
func printJSON(out io.Writer, at string, v gjson.Result) {
	switch {
	case v.IsObject():
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		v.ForEach(func(name, member gjson.Result) bool {
			if !nested(member) {
				fmt.Fprintf(w, "%s%s\t%s\n", at, plain(name), plain(member))
				return true
			}
			fmt.Fprintf(w, "%s%s\n", at, plain(name))
			_ = w.Flush() // to a buffer
			printJSON(out, at+"  ", member)
			return true
		})
		_ = w.Flush() // to a buffer
	case v.IsArray():
		printList(out, at, v.Array())
	default:
		fmt.Fprintf(out, "%s%s\n", at, plain(v))
	}
}

// printList prints a list: as a table, if its elements are objects of which
// nothing takes lines of its own.
func printList(out io.Writer, at string, list []gjson.Result) {
	var columns []string
	seen := make(map[string]bool)
	tabular := true
	for _, v := range list {
		if !v.IsObject() {
			tabular = false
			break
		}
		v.ForEach(func(name, member gjson.Result) bool {
			tabular = tabular && !nested(member)
			if !seen[name.Str] {
				seen[name.Str] = true
				columns = append(columns, name.Str)
			}
			return true
		})
	}
	if !tabular || len(columns) == 0 {
		for i, v := range list {
			if v.IsObject() && i > 0 {
				fmt.Fprintln(out)
			}
			printJSON(out, at, v)
		}
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s%s\n", at, strings.ToUpper(strings.Join(columns, "\t")))
	for _, v := range list {
		cells := make([]string, len(columns))
		members := v.Map()
		for i, c := range columns {
			cells[i] = plain(members[c])
		}
		fmt.Fprintf(w, "%s%s\n", at, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // to a buffer
}

// nested reports whether a value takes lines of its own.
func nested(v gjson.Result) bool {
	return v.Type == gjson.JSON && len(v.Raw) > 2
}

// plain returns a value as a word of a line.
func plain(v gjson.Result) string {
	switch {
	case v.Type == gjson.String:
		return printable(v.Str)
	case !v.Exists(), v.Type == gjson.Null, v.Type == gjson.JSON:
		return "-"
	}
	return v.Raw
}
