#!/bin/sh
# Makes the Python code of the protocol, in generated/. On Debian it needs
# protobuf-compiler and libprotobuf-dev; the plugin itself needs python3-grpcio
# and python3-protobuf.
set -eu
cd "$(dirname "$0")"
mkdir -p generated
protoc -I ../../sdk/proto --python_out=generated ../../sdk/proto/usher/policy/v1/policy.proto
