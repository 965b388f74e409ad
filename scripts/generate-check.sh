#!/bin/sh
# Fails if the protocol files are not formatted, break a rule or an existing client, or if
# gen/ or the baseline is not what scripts/generate.sh makes of them. Changes nothing.
set -eu
cd "$(dirname "$0")/.."
baseline=proto/baseline.binpb

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 1' HUP INT TERM

failed=0
fail() {
	echo "scripts/generate-check.sh: $*" >&2
	failed=1
}

# Also installs buf, so that a missing tool ends the script here and is not taken for a finding.
scripts/buf.sh --version >/dev/null

scripts/buf.sh format --diff --exit-code || fail "proto/ is not formatted: run scripts/generate.sh"
scripts/buf.sh lint || fail "proto/ breaks a lint rule"
scripts/buf.sh breaking --against "$baseline" || fail "proto/ breaks existing clients"

scripts/buf.sh build --exclude-source-info -o "$temp/baseline.binpb"
cmp "$baseline" "$temp/baseline.binpb" || fail "$baseline does not hold what proto/ says: run scripts/generate.sh"

scripts/buf.sh generate -o "$temp"
diff -r gen "$temp/gen" || fail "gen/ is not what proto/ says: run scripts/generate.sh"

exit "$failed"
