#!/bin/sh
# Brings what the tests need beside Go: a C compiler for the race detector, and the servers
# that they start for themselves. Installs Debian packages if it may, else says which.
# Starts no service, and does nothing where everything is there.
set -eu

# Sets packages to those that are missing. What counts is the program, not what the package
# manager believes: that is also what the tests look for.
look() {
	packages=
	if ! command -v gcc >/dev/null || ! [ -e /usr/include/stdlib.h ]; then
		packages="$packages gcc libc6-dev"
	fi
	if ! [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || ! command -v epmd >/dev/null; then
		packages="$packages rabbitmq-server"
	fi
	found=no
	for initdb in /usr/lib/postgresql/*/bin/initdb; do
		[ -x "$initdb" ] && found=yes
	done
	[ "$found" = yes ] || packages="$packages postgresql"
	command -v redis-server >/dev/null || packages="$packages redis-server"
	command -v haproxy >/dev/null || packages="$packages haproxy"
	# What docs/python.md needs, which a test runs.
	command -v protoc >/dev/null || packages="$packages protobuf-compiler"
	[ -x /usr/bin/grpc_python_plugin ] || packages="$packages protobuf-compiler-grpc"
	/usr/bin/python3 -c "import grpc" 2>/dev/null || packages="$packages python3-grpcio"
}

refuse() {
	echo "scripts/deps.sh: the tests need packages that are missing:$packages" >&2
	echo "scripts/deps.sh: $1" >&2
	echo "  apt-get update && apt-get install --no-install-recommends$packages" >&2
	exit 1
}

look
if [ -z "$packages" ]; then
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	refuse "this machine has no apt-get; install what corresponds to:"
fi
if [ "$(id -u)" = 0 ]; then
	as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	as_root="sudo -n"
else
	refuse "this needs root, or sudo without a password; as root:"
fi

# Debian starts a service when it installs it. A policy that denies it is put there for the
# time being, if the machine has none of its own.
policy=/usr/sbin/policy-rc.d
placed=no
clean_up() {
	if [ "$placed" = yes ]; then
		$as_root rm -f "$policy"
	fi
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
if ! [ -e "$policy" ]; then
	placed=yes
	printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
	$as_root chmod 755 "$policy"
fi

# Mirrors and networks fail now and then.
apt() {
	for pause in 2 5 15 0; do
		if $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
			-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"; then
			return 0
		fi
		[ "$pause" = 0 ] || sleep "$pause"
	done
	return 1
}

echo "scripts/deps.sh: installing$packages" >&2
apt update >&2 || echo "scripts/deps.sh: the package lists could not be renewed; trying the old ones" >&2
# shellcheck disable=SC2086 # a list
apt install --no-install-recommends $packages >&2 || refuse "they could not be installed:"

look
if [ -n "$packages" ]; then
	refuse "they are installed, but their programs are not where they belong; see:"
fi
