package host

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

// Inline returns a client of policies that live in this process: the same
// calls without a connection. A panic of a policy in a goroutine of its own
// ends this process, and nothing keeps it from the memory of others. Instances
// end at the latest with ctx, but Drain ends them in order.
func Inline(ctx context.Context, name string, definitions ...sdk.Definition) *Client {
	c := newClient(nil)
	c.rpc = inline{sdk.NewServerPlugin(ctx, name, definitions...).Service(func(r *policypb.Revoked) { c.revoked(r) })}
	return c
}

var errInline = errors.New("policies of this process need no session")

// inline makes the calls of a client on a server of this process. Nothing that
// is passed is used by the caller afterwards, so nothing is copied.
type inline struct {
	server policypb.PolicyServiceServer
}

func (i inline) GetInfo(ctx context.Context, in *policypb.GetInfoRequest, _ ...grpc.CallOption) (*policypb.GetInfoResponse, error) {
	return i.server.GetInfo(ctx, in)
}

func (i inline) ValidateConfig(ctx context.Context, in *policypb.ValidateConfigRequest, _ ...grpc.CallOption) (*policypb.ValidateConfigResponse, error) {
	return i.server.ValidateConfig(ctx, in)
}

func (i inline) Configure(ctx context.Context, in *policypb.ConfigureRequest, _ ...grpc.CallOption) (*policypb.ConfigureResponse, error) {
	return i.server.Configure(ctx, in)
}

func (i inline) SyncCatalog(ctx context.Context, in *policypb.SyncCatalogRequest, _ ...grpc.CallOption) (*policypb.SyncCatalogResponse, error) {
	return i.server.SyncCatalog(ctx, in)
}

func (i inline) Restore(ctx context.Context, in *policypb.RestoreRequest, _ ...grpc.CallOption) (*policypb.RestoreResponse, error) {
	return i.server.Restore(ctx, in)
}

func (i inline) Decide(ctx context.Context, in *policypb.DecideRequest, _ ...grpc.CallOption) (*policypb.DecideResponse, error) {
	return i.server.Decide(ctx, in)
}

func (i inline) Admit(ctx context.Context, in *policypb.AdmitRequest, _ ...grpc.CallOption) (*policypb.AdmitResponse, error) {
	return i.server.Admit(ctx, in)
}

func (i inline) Cancel(ctx context.Context, in *policypb.CancelRequest, _ ...grpc.CallOption) (*policypb.CancelResponse, error) {
	return i.server.Cancel(ctx, in)
}

func (i inline) Release(ctx context.Context, in *policypb.ReleaseRequest, _ ...grpc.CallOption) (*policypb.ReleaseResponse, error) {
	return i.server.Release(ctx, in)
}

func (i inline) Observe(ctx context.Context, in *policypb.ObserveRequest, _ ...grpc.CallOption) (*policypb.ObserveResponse, error) {
	return i.server.Observe(ctx, in)
}

func (i inline) Operate(ctx context.Context, in *policypb.OperateRequest, _ ...grpc.CallOption) (*policypb.OperateResponse, error) {
	return i.server.Operate(ctx, in)
}

func (i inline) Drain(ctx context.Context, in *policypb.DrainRequest, _ ...grpc.CallOption) (*policypb.DrainResponse, error) {
	return i.server.Drain(ctx, in)
}

// Session is not needed where there is no connection.
func (i inline) Session(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[policypb.SessionRequest, policypb.SessionResponse], error) {
	return nil, errInline
}

var _ policypb.PolicyServiceClient = inline{}
