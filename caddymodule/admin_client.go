package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// addressFlag adds the flag that says where the admin API is.
func addressFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("address", "", "Address of the admin API (default: "+caddy.DefaultAdminListen+")")
}

// askAdmin asks the admin API of a running instance, which is at the given
// address, or else at Caddy's default, and returns its answer.
func askAdmin(address, method, path, input string) ([]byte, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(address, nil, "", "")
	if err != nil {
		return nil, fmt.Errorf("find the admin API: %w", err)
	}
	resp, err := caddycmd.AdminAPIRequest(address, method, path, nil, strings.NewReader(input))
	if err != nil {
		return nil, adminError(address, err.Error())
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	return io.ReadAll(resp.Body)
}

// adminError returns the error of a request to the admin API in the words of
// who asked. Caddy's own client has nothing but text for it.
func adminError(address, text string) error {
	if _, why, ok := strings.Cut(text, "performing request: "); ok {
		why = why[strings.LastIndex(why, ": ")+1:]
		return fmt.Errorf("no Usher answers at %s; start one, or name its admin API with --address:%s", address, why)
	}
	var answer struct{ Error string }
	if i := strings.IndexByte(text, '{'); i >= 0 && json.Unmarshal([]byte(text[i:]), &answer) == nil && answer.Error != "" {
		return errors.New(answer.Error)
	}
	return errors.New(strings.TrimSpace(text))
}
