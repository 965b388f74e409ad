#!/bin/sh
# Breaks a whole deployment under load and judges what clients saw; docs/chaos.md explains it.
# `make chaos` gives it MINUTES, SEED, GATEWAYS, NODES and ONLY by the environment. Arguments go
# to the test, such as -chaos.keep.
set -eu
cd "$(dirname "$0")/.."
scripts/deps.sh

# A developer's gateway settings are not the tests'.
for name in $(env | sed -n 's/^\(AETHER_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done

minutes=${MINUTES:-1.25}
seconds=$(awk "BEGIN { print int($minutes * 60) }")
CGO_ENABLED=1 exec go test -v -count=1 -timeout "$((seconds + 900))s" -run '^TestRound$' ./test/chaos \
	-chaos.length "${seconds}s" -chaos.seed "${SEED:-1}" -chaos.gateways "${GATEWAYS:-2}" \
	-chaos.nodes "${NODES:-1}" -chaos.only "${ONLY:-}" "$@"
