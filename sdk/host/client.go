package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// Handshake is what host and plugin must agree on before they talk.
var Handshake = wire.Handshake

// LifelineEnv names the environment variable that tells a plugin that its
// standard input stays open as long as the host lives.
const LifelineEnv = wire.LifelineEnv

// PluginName is the name under which go-plugin dispenses the [*Client].
const PluginName = wire.PluginName

// PluginSets returns the host's half for go-plugin, by protocol version.
func PluginSets() map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{wire.ProtocolVersion: {PluginName: &Plugin{}}}
}

// DialOptions are what the connection needs beyond go-plugin's own options.
func DialOptions() []grpc.DialOption {
	return append(wire.DialOptions(),
		grpc.WithDisableRetry(), // the host retries by itself, with what it knows of the process
		grpc.WithDisableServiceConfig())
}

// Plugin connects the host's half to go-plugin.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
}

// GRPCServer fails: a host serves nothing.
func (*Plugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("not a plugin")
}

// GRPCClient returns a [*Client].
func (*Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, cc *grpc.ClientConn) (any, error) {
	return newClient(policypb.NewPolicyServiceClient(cc)), nil
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// A Client calls one plugin process. It is safe for concurrent use.
//
// Its methods return an error only if the call itself failed; see
// [Unavailable], [Unknown] and [TimedOut].
type Client struct {
	rpc     policypb.PolicyServiceClient
	session *session // nil unless OpenSession was called

	takesParts atomic.Bool // of catalogs; told by Info
	stock      stock

	mu      sync.Mutex // guards revokes
	revokes map[leaseKey]func(policy.Reason)
}

func newClient(rpc policypb.PolicyServiceClient) *Client {
	return &Client{rpc: rpc, revokes: make(map[leaseKey]func(policy.Reason))}
}

// Unavailable reports whether err says that the process is gone, or that this
// side has closed the connection, so that the same call may be made again when
// another process serves.
func Unavailable(err error) bool {
	//lint:ignore SA1019 nothing else tells a closed connection from a cancelled call
	return status.Code(err) == codes.Unavailable || errors.Is(err, grpc.ErrClientConnClosing)
}

// Unknown reports whether err says that the process does not know the instance
// or the catalog of the call, so that they have to be sent first.
func Unknown(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// TimedOut reports whether err says that the process did not answer in time.
func TimedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// Info is what a plugin says of itself.
type Info struct {
	// Name and Version are for people.
	Name, Version string

	// Policies are the names that Configure may use.
	Policies []string

	// Capabilities name what the plugin can do beyond the mandatory calls.
	Capabilities []string

	// Options describes those of the policies whose plugin does so, by the
	// name of the policy.
	Options map[string][]sdk.Option
}

// Info asks what the process is.
func (c *Client) Info(ctx context.Context, hostVersion string) (Info, error) {
	resp, err := c.rpc.GetInfo(ctx, &policypb.GetInfoRequest{HostVersion: hostVersion})
	if err != nil {
		return Info{}, err
	}
	c.takesParts.Store(slices.Contains(resp.GetCapabilities(), wire.CapabilityCatalogParts))
	info := Info{Name: resp.GetName(), Version: resp.GetVersion(), Policies: resp.GetPolicies(), Capabilities: resp.GetCapabilities()}
	for _, p := range resp.GetDetails() {
		if info.Options == nil {
			info.Options = make(map[string][]sdk.Option)
		}
		info.Options[p.GetName()] = []sdk.Option{}
		for _, o := range p.GetOptions() {
			info.Options[p.GetName()] = append(info.Options[p.GetName()], sdk.Option{Name: o.GetName(), Type: o.GetType(), Default: o.GetDefaultJson()})
		}
	}
	return info, nil
}

// ValidateConfig checks a configuration, a JSON object, without side effects.
func (c *Client) ValidateConfig(ctx context.Context, policyName string, config json.RawMessage) ([]sdk.Diagnostic, error) {
	resp, err := c.rpc.ValidateConfig(ctx, &policypb.ValidateConfigRequest{Policy: policyName, ConfigJson: config})
	return diagnosticsFromProto(resp.GetDiagnostics()), err
}

// Kinds are the decisions that an instance takes part in.
type Kinds struct {
	// Selection, Admission and Observer are set if the instance offers them.
	Selection, Admission, Observer bool

	// Restorer is set if the admission can be restored.
	Restorer bool

	// Operable is set if the instance answers operators.
	Operable bool
}

// A ConfigError tells that a plugin refused a configuration.
type ConfigError struct {
	// Policy is the policy, and Diagnostics what is wrong.
	Policy      string
	Diagnostics []sdk.Diagnostic
}

// Error names the policy and everything that is wrong.
func (e *ConfigError) Error() string {
	errs := make([]error, len(e.Diagnostics))
	for i, d := range e.Diagnostics {
		errs[i] = d
	}
	return fmt.Sprintf("policy %s: %v", e.Policy, errors.Join(errs...))
}

// Configure creates an instance under a name of the host's choice. It returns
// a [*ConfigError] if the plugin refuses the configuration.
func (c *Client) Configure(ctx context.Context, instance, policyName string, config json.RawMessage) (Kinds, error) {
	resp, err := c.rpc.Configure(ctx, &policypb.ConfigureRequest{Instance: instance, Policy: policyName, ConfigJson: config})
	if err != nil {
		return Kinds{}, err
	}
	if ds := resp.GetDiagnostics(); len(ds) > 0 {
		return Kinds{}, &ConfigError{Policy: policyName, Diagnostics: diagnosticsFromProto(ds)}
	}
	has := func(k policypb.Kind) bool { return slices.Contains(resp.GetKinds(), k) }
	return Kinds{
		Selection: has(policypb.Kind_KIND_SELECTION),
		Admission: has(policypb.Kind_KIND_ADMISSION),
		Observer:  has(policypb.Kind_KIND_OBSERVER),
		Restorer:  has(policypb.Kind_KIND_RESTORER),
		Operable:  has(policypb.Kind_KIND_OPERABLE),
	}, nil
}

// Drain ends an instance, or all if it has no name.
func (c *Client) Drain(ctx context.Context, instance string) error {
	_, err := c.rpc.Drain(ctx, &policypb.DrainRequest{Instance: instance})
	return err
}

func diagnosticsFromProto(ds []*policypb.Diagnostic) []sdk.Diagnostic {
	var out []sdk.Diagnostic
	for _, d := range ds {
		out = append(out, sdk.Diagnostic{Option: d.GetOption(), Message: d.GetMessage()})
	}
	return out
}
