// Package host is the host's half of the connection to a plugin: it calls the
// policies that the plugin's half, package sdk, serves.
//
// A [Client] makes the calls of the wire protocol. [Client.Instance] turns one
// configured policy into the interfaces of package policy, so that a policy in
// another process is used like one in this process. Policy authors need
// neither; package policytest does.
package host
