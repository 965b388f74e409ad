#!/bin/sh
# Runs each fuzz test for a while, 10 s unless an argument says otherwise:
#   scripts/fuzz.sh 2m
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}

found=$(git grep --untracked -l '^func Fuzz' -- '*_test.go' | sort)
[ -n "$found" ] || { echo "scripts/fuzz.sh: no fuzz tests" >&2; exit 1; }
for file in $found; do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "== $name ($(dirname "$file"))"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$(dirname "$file")"
	done
done
