package main

import (
	"fmt"
	"strings"
)

// A mode is a configuration to measure.
type mode struct {
	name   string
	global string // options of usher
	usher  string // who decides; empty for Caddy's own proxy
}

// modes are all of them. The others are compared with the first.
var modes = []mode{
	{name: "caddy reverse_proxy"},
	{name: "usher, no policy", usher: "select none\nadmit none"},
	{name: "usher, keys", usher: "select keys\nadmit none"},
	{name: "usher, keys and fifo", usher: "select keys\nadmit fifo"},
	{name: "usher, keys inline", global: "inline keys", usher: "select keys\nadmit none"},
	{name: "usher, keys and fifo inline", global: "inline keys fifo", usher: "select keys\nadmit fifo"},
}

// connections is how many idle connections to the provider may be kept.
const connections = 512

// caddyfile returns the configuration of a gateway to a provider with a number
// of keys.
func (m mode) caddyfile(port int, provider string, keys int) string {
	global := "admin off\n"
	if m.global != "" {
		global += "usher {\n" + m.global + "\n}\n"
	}
	site := fmt.Sprintf("reverse_proxy %s {\nheader_up Authorization \"Bearer {env.BENCH_KEY}\"\ntransport http {\nkeepalive_idle_conns_per_host %d\n}\n}\n", provider, connections)
	if m.usher != "" {
		var k strings.Builder
		for i := range keys {
			k.WriteString(fmt.Sprintf("key k%d {env.BENCH_KEY} {\nlimit concurrency 100000\n}\n", i+1))
		}
		site = fmt.Sprintf("usher {\nprovider p http://%s {\n%s}\nmodel m p\n%s\n}\n", provider, &k, m.usher)
	}
	return fmt.Sprintf("{\n%s}\nhttp://127.0.0.1:%d {\n%s}\n", global, port, site)
}
