// Package usher links Usher into a Caddy: the module and its default policies.
// It is what xcaddy builds with:
//
//	xcaddy build --with github.com/usherproxy/usher
//
// The default policies run as a process that the same executable starts again,
// with a subcommand of its own, or in its own process if they are to be inline.
package usher

import (
	"errors"
	"fmt"
	"os"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/keys"
)

func init() {
	caddymodule.RegisterBuiltIn(keys.New().Definition(), fifo.New().Definition())
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  caddymodule.BuiltInCommand,
		Short: "Serves the default policies to Usher; not for use by hand",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Hidden = true
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(*cobra.Command, []string) error {
				caddymodule.ServeBuiltIn()
				return nil
			}
		},
	})
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fifo",
		Usage: "status | migrate --dsn <dsn>",
		Short: "Looks at the queue, or makes the tables of its shared store",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(caddymodule.OperateCommand("fifo", "status", "Prints what runs and waits, and how the store is"), migrate())
		},
	})
}

// migrate is the command that makes the tables of the shared store.
func migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate --dsn <dsn>",
		Short: "Makes the tables of the shared store, or brings them to the newest version",
		Long: `
Makes the tables of store postgres of policy fifo, or brings them to the newest
version. Replicas do the same when they start, so this is for those whose user may
not. It does no harm while they run.

The DSN may also be in the environment variable USHER_FIFO_DSN, where no list of
processes shows its password.`,
		Args: cobra.NoArgs,
	}
	dsn := cmd.Flags().String("dsn", "", "The database, as a URL or as \"host=db user=usher\"")
	schema := cmd.Flags().String("schema", fifo.DefaultConfig().Schema, "Its schema for the tables")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *dsn == "" {
			*dsn = os.Getenv("USHER_FIFO_DSN")
		}
		if *dsn == "" {
			return errors.New("name the database by --dsn or USHER_FIFO_DSN")
		}
		before, after, err := fifo.Migrate(cmd.Context(), *dsn, *schema)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "schema %s is of version %d, and was of version %d\n", *schema, after, before)
		return err
	}
	return cmd
}
