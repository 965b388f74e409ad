#!/bin/sh
# Compiles proto/ into gen/ and moves the baseline of the compatibility check forward.
# A change that would break an existing client is refused before anything is written.
#
# To take back a change that the baseline holds already and that was never published,
# restore the baseline from version control first.
set -eu
cd "$(dirname "$0")/.."
baseline=proto/baseline.binpb

scripts/buf.sh format --write
scripts/buf.sh lint
if [ -f "$baseline" ]; then
	scripts/buf.sh breaking --against "$baseline"
fi
scripts/buf.sh generate
scripts/buf.sh build --exclude-source-info -o "$baseline"
