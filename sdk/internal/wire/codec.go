package wire

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/usherproxy/usher/sdk/internal/policypb"
)

// codec marshals what every request takes with generated code, and the rest as
// gRPC does by itself. The bytes are the same.
type codec struct{ encoding.CodecV2 }

// DialOptions are the options of a host's connection: the generated code, the
// size of messages, and how much may be on its way.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()),
			grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(connectionWindowBytes),
	}
}

// ServerOptions are the same for a plugin's server.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()), grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(connectionWindowBytes),
	}
}

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// fast is a message with generated code.
type fast interface {
	SizeVT() int
	MarshalToSizedBufferVT(into []byte) (int, error)
	UnmarshalVTUnsafe(from []byte) error
}

// hot returns v with its generated code if every request takes one of its kind.
func hot(v any) (fast, bool) {
	switch m := v.(type) {
	case *policypb.SessionRequest:
		return m, true
	case *policypb.SessionResponse:
		return m, true
	case *policypb.DecideRequest:
		return m, true
	case *policypb.DecideResponse:
		return m, true
	case *policypb.ReleaseRequest:
		return m, true
	case *policypb.ObserveRequest:
		return m, true
	}
	return nil, false
}

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := hot(v)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := m.SizeVT()
	if mem.IsBelowBufferPoolingThreshold(size) {
		buf := make([]byte, size)
		if _, err := m.MarshalToSizedBufferVT(buf); err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(buf)}, nil
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	if _, err := m.MarshalToSizedBufferVT((*buf)[:size]); err != nil {
		pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Unmarshal implements [encoding.CodecV2]. The strings of a hot message are
// parts of one copy of what was received.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := hot(v)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	return m.UnmarshalVTUnsafe(data.Materialize())
}
