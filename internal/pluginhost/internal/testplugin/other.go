package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// listen shakes hands by hand.
func listen() net.Listener {
	l, err := net.Listen("unix", filepath.Join(os.Getenv(plugin.EnvUnixSocketDir), "s"))
	if err != nil {
		panic(err)
	}
	fmt.Printf("1|1|unix|%s|grpc|\n", l.Addr())
	return l
}

// mute listens and never answers.
func mute() {
	listen()
	select {}
}

// unavailable is a plugin in another language whose store is down: it says what
// it is, and answers every other call with the code "unavailable".
func unavailable() {
	err := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if !strings.HasSuffix(method, "/GetInfo") {
			return status.Error(codes.Unavailable, "the store is down")
		}
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return stream.SendMsg(&emptypb.Empty{})
	})).Serve(listen())
	panic(err)
}
