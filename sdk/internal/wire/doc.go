// Package wire translates between the types of package policy and the
// messages of the wire protocol, for both halves of a connection.
package wire

import "github.com/hashicorp/go-plugin"

// ProtocolVersion is the version of the wire protocol in proto/usher/policy/v1
// that go-plugin negotiates. It changes only if the protobuf package does.
const ProtocolVersion = 1

// PluginName is the name under which a host dispenses the one service of a
// plugin process.
const PluginName = "policy"

// Handshake lets a plugin refuse to run when it was not started by Usher. It
// guards against mistakes and gives no security.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "USHER_POLICY_PLUGIN",
	MagicCookieValue: "2f1d7c0e-8e0b-4b55-9a57-0b9f6f1f3a60",
}

// LifelineEnv names the environment variable with which the host says that the
// plugin's standard input stays open as long as the host lives.
const LifelineEnv = "USHER_LIFELINE"

// MaxMessageBytes is the size of the largest message that either side takes.
// Catalogs of many thousand candidates exceed gRPC's default of 4 MiB.
const MaxMessageBytes = 64 << 20

// How much may be on its way: of one call or stream, and of a connection. To
// say so keeps gRPC from measuring it all the time.
const windowBytes, connectionWindowBytes = 1 << 20, 8 << 20

// CapabilityCatalogParts says that a plugin takes catalogs in parts.
const CapabilityCatalogParts = "catalog_parts"

// CapabilitySession says that a plugin serves sessions.
const CapabilitySession = "session"
