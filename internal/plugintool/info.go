package plugintool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.uber.org/zap"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/sdk/host"
)

// An Executable is a plugin to look at.
type Executable struct {
	// Spec says how it is started.
	Spec pluginhost.Spec

	// Log is where its log goes.
	Log *zap.Logger
}

func (e *Executable) start(ctx context.Context) (*pluginhost.Single, error) {
	return pluginhost.StartSingle(ctx, e.Spec, e.Log)
}

// endTimeout is how long a plugin may take to end.
const endTimeout = 4 * time.Second

// Info starts the executable, prints what it offers, and ends it. To tell the
// kinds of its policies it configures each of them once, with config or, if
// that is empty, with its defaults.
func (e *Executable) Info(ctx context.Context, out io.Writer, config string) error {
	p, err := e.start(ctx)
	if err != nil {
		return err
	}
	defer p.End(endTimeout)
	info := p.Info()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "name\t%s\n", info.Name) // Flush tells
	fmt.Fprintf(w, "version\t%s\n", info.Version)
	fmt.Fprintf(w, "protocol\t%d\n", host.Handshake.ProtocolVersion)
	fmt.Fprintf(w, "capabilities\t%s\n", orNone(info.Capabilities))
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range info.Policies {
		fmt.Fprintf(w, "\npolicy %s\n", name)
		fmt.Fprintf(w, "  kinds\t%s\n", e.kinds(ctx, p.Client(), name, config))
		options, told := info.Options[name]
		switch {
		case !told:
			fmt.Fprintf(w, "  options\tit does not tell\n")
		case len(options) == 0:
			fmt.Fprintf(w, "  options\tnone\n")
		}
		if err := w.Flush(); err != nil { // each table has its own columns
			return err
		}
		if len(options) > 0 {
			fmt.Fprintf(w, "  option\tdefault\tvalue\n")
		}
		for _, o := range options {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", o.Name, defaultWord(o.Default), o.Type)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// defaultWord shows a default as a Caddyfile would have it.
func defaultWord(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" && !strings.ContainsAny(text, " \t\n\"{}") {
		return text
	}
	if len(raw) == 0 || string(raw) == "null" {
		return "-"
	}
	return string(raw)
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// kinds tells the kinds of a policy, or why they are not known.
func (e *Executable) kinds(ctx context.Context, client *host.Client, policyName, config string) string {
	kinds, err := configureOnce(ctx, client, policyName, config)
	if err == nil {
		return orNone(kindWords(kinds))
	}
	if refused, ok := errors.AsType[*host.ConfigError](err); ok && config == "" {
		return fmt.Sprintf("not known: its defaults are not enough (%v); try --config", refused)
	}
	return fmt.Sprintf("not known: %v", err)
}

// configureOnce makes an instance and drains it.
func configureOnce(ctx context.Context, client *host.Client, policyName, config string) (host.Kinds, error) {
	const instance = "usher-plugin"
	if config == "" {
		config = "{}"
	}
	kinds, err := client.Configure(ctx, instance, policyName, json.RawMessage(config))
	if err != nil {
		return host.Kinds{}, err
	}
	return kinds, client.Drain(ctx, instance)
}

func kindWords(k host.Kinds) []string {
	var words []string
	for _, kind := range []struct {
		is   bool
		word string
	}{{k.Selection, "selection"}, {k.Admission, "admission"}, {k.Restorer, "restorer"}, {k.Observer, "observer"}, {k.Operable, "operable"}} {
		if kind.is {
			words = append(words, kind.word)
		}
	}
	return slices.Clip(words)
}
