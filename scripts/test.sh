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
# Also for the gateway that tests build. Only this one package may be left out: it makes no
# generic code of the standard library, which the linker would share with packages that are
# watched; the detector then no longer sees what orders their accesses.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-gcflags=modernc.org/sqlite/lib=-race=false"

# Two packages at a time: several of them start a broker.
run() {
	CGO_ENABLED=1 go test -p 2 -timeout 20m "$@"
}

if [ "$#" != 0 ]; then
	run -race "$@"
	exit
fi
# test/e2e runs beside all others: half of its time it waits for faults to be noticed and for
# brokers to start, and what it allows for a recovery is several times what one takes. The
# gateway that it builds has the race detector, its clients need none. A round of faults has a
# command of its own, scripts/chaos.sh. Of the others those that take longest come first, so
# that none of them is left over when all others are done.
failed=0
said=$(mktemp)
# Never from the cache of results: that does not know of the gateway that it builds.
run -count=1 ./test/e2e >"$said" 2>&1 &
e2e=$!
trap 'kill "$e2e" 2>/dev/null || true; rm -f "$said"' EXIT
trap 'exit 1' HUP INT TERM
# shellcheck disable=SC2046
run -race -skip '^TestRound$' $(go list ./internal/gateway ./internal/streams/rabbitmq ./cmd/gateway ./internal/router) \
	$(go list ./... | grep -v /test/e2e) || failed=1
wait "$e2e" || failed=1
cat "$said"
exit "$failed"
