#!/bin/sh
# Runs the tests as `make test` does, with the race detector, on real servers. Arguments go
# to `go test`; without any, all packages are tested:
#   scripts/test.sh -run Resume ./internal/router
set -eu
cd "$(dirname "$0")/.."
scripts/deps.sh

# A developer's gateway settings are not the tests'.
for name in $(env | sed -n 's/^\(AETHER_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done

# The database engine of the embedded mode, C that was translated to Go, runs three times as
# long when the detector watches its every access; that it races would show in what calls it.
# Also for the gateway that tests build.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-gcflags=modernc.org/...=-race=false"

# Two packages at a time: several of them start a broker.
run() {
	CGO_ENABLED=1 go test -race -p 2 -timeout 15m "$@"
}

if [ "$#" != 0 ]; then
	run "$@"
	exit
fi
# By themselves: test/e2e measures how soon everything works again after a fault, and a round
# of faults has a command of its own, scripts/chaos.sh. Those that take longest come first, so
# that none of them is left over when all others are done.
failed=0
# shellcheck disable=SC2046
run -skip '^TestRound$' $(go list ./internal/streams/rabbitmq ./internal/router ./internal/gateway ./cmd/gateway) \
	$(go list ./... | grep -v /test/e2e) || failed=1
run ./test/e2e || failed=1
exit "$failed"
