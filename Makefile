# What developers run. CI runs .ci/run, which calls "make test" and "make check".

GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = go run github.com/kisielk/errcheck@v1.30.0
DEADCODE    = go run golang.org/x/tools/cmd/deadcode@v0.52.0
BUF         = github.com/bufbuild/buf/cmd/buf@v1.75.0
PROTOC_GEN  = google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2 \
             github.com/planetscale/vtprotobuf/cmd/protoc-gen-go-vtproto@v0.6.1-0.20240319094008-0393e58bdf10

# The tools of "make generate".
TOOLS = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/usher-ci/bin

.PHONY: build test e2e-deps postgres python check generate fuzz bench-admission bench

build: ## the executable
	go build -o usher ./cmd/usher

test: e2e-deps postgres python ## all tests, with the race detector
	go test -race ./...

e2e-deps: ## what the end-to-end tests need: from npm, and a collector that is built once
	./internal/e2e/setup.sh

postgres: ## a server and a pooler for the tests of the store that replicas share: $PGBIN, or Debian's
	@{ test -x "$$PGBIN/initdb" || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; } && \
		{ command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer; } || { \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -q && $$sudo apt-get install -yq --no-install-recommends postgresql pgbouncer; }

python: ## what the example policy in Python needs, from Debian's packages
	@/usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null && command -v protoc >/dev/null && test -f /usr/include/google/protobuf/timestamp.proto || { \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -q && $$sudo apt-get install -yq --no-install-recommends python3-grpcio python3-protobuf protobuf-compiler libprotobuf-dev; }

check: ## the cheap checks
	@unformatted=$$($(GOFUMPT) -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')) && \
		if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; exit 1; fi
	go vet ./...
	go fix -diff ./...
	go mod tidy -diff
	$(STATICCHECK) ./...
	$(ERRCHECK) -exclude .errcheck ./...
	@dead=$$($(DEADCODE) -test ./... | grep -v ' Example') ; if [ -n "$$dead" ]; then echo "$$dead"; exit 1; fi

generate: ## the code of the wire protocol, after a look at its style
	@for tool in $(BUF) $(PROTOC_GEN); do GOBIN="$(TOOLS)" go install $$tool || exit 1; done
	cd sdk && PATH="$(TOOLS):$$PATH" && buf lint && buf format --diff --exit-code && buf generate

fuzz: ## every fuzz target, for FUZZTIME each
	@for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),1m) $$pkg || exit 1; \
		done; \
	done

bench: ## what Usher costs a request, beside Caddy's reverse_proxy in the same run
	go run ./bench/gateway

bench-admission: postgres ## what admission by a shared store costs, beside single-row updates
	go run ./bench/admission
