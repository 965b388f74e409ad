#!/bin/sh
# Runs the pinned buf; installs it from the lock file first, if it is not there.
#
#   scripts/buf.sh ARGUMENTS...
set -eu
cd "$(dirname "$0")/.."

if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
	echo "scripts/buf.sh: needs node and npm (Node 20 or newer), which are not on the PATH" >&2
	exit 1
fi

pinned=$(node -p "require('./package-lock.json').packages['node_modules/@bufbuild/buf'].version")
installed=$(node -p "require('./node_modules/@bufbuild/buf/package.json').version" 2>/dev/null || true)
if [ "$installed" != "$pinned" ]; then
	# The binary is a package of its own: no install script has to run.
	npm ci --ignore-scripts --silent >&2
fi
exec node_modules/.bin/buf "$@"
