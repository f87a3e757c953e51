// Package policypb is the generated code of the wire protocol in sdk/proto.
// Only package sdk imports it; "make generate" writes it anew.
package policypb
