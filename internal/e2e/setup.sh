#!/bin/sh
# Installs what the end-to-end tests run besides Usher: a mock provider,
# clients and a Node.js from npm (in clients/node/node_modules), and an
# OpenTelemetry Collector built from collector/ into the cache of CI. What is
# there already, in the versions of the lock files, is left alone.
set -eu
cd "$(dirname "$0")"

lock=clients/node/package-lock.json
if ! cmp -s "$lock" clients/node/node_modules/.e2e-lock.json; then
	npm ci --prefix clients/node --ignore-scripts --no-audit --no-fund --loglevel=error
	cp "$lock" clients/node/node_modules/.e2e-lock.json
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/usher-ci
collector=$cache/collector-$(cat collector/go.mod collector/go.sum collector/*.go | sha256sum | cut -c1-16)
if [ ! -x "$collector" ]; then
	mkdir -p "$cache"
	go build -C collector -trimpath -o "$collector.new" .
	mv "$collector.new" "$collector"
fi
ln -sfn "$(basename "$collector")" "$cache/collector"
