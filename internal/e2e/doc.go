// Package e2e tests Usher from its outside: the real binary under real
// Caddyfiles, between clients and providers that are not ours wherever there
// are any (the SDKs of OpenAI and Anthropic for Node and Go, those of Google and
// Vercel for Node, aimock, the OpenTelemetry Collector).
//
// What the tests need besides Go is installed by "make e2e-deps", which runs
// setup.sh. A test whose needs are missing fails and says so.
package e2e
