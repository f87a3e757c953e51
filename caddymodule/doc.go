// Package caddymodule is the Caddy side of Usher: the directive and the global
// option usher, the routes of the admin API, and the handler that asks policies
// about each AI request, proxies it, and tells them how it ended.
package caddymodule
