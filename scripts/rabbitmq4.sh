#!/bin/sh
# Runs the tests of the RabbitMQ driver against RabbitMQ 4, which Debian 12 does not have: with
# Debian 13's package in a directory of its own. Needs root and debootstrap; the first run
# downloads some 250 MB, later ones use what is in .cache/. Arguments go to the test binary:
#   scripts/rabbitmq4.sh -test.run Conformance -test.v
set -eu
cd "$(dirname "$0")/.."
root=$PWD/.cache/debian13
package=./internal/streams/rabbitmq

[ "$(id -u)" = 0 ] || { echo "scripts/rabbitmq4.sh: needs root, for chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || {
	echo "scripts/rabbitmq4.sh: needs debootstrap: apt-get install --no-install-recommends debootstrap" >&2
	exit 1
}

if ! [ -e "$root/complete" ]; then
	rm -rf "$root"
	mkdir -p "$root"
	debootstrap --variant=minbase trixie "$root"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	unshare --mount --pid --fork chroot "$root" sh -ec '
		mount -t proc proc /proc
		DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends rabbitmq-server
		apt-get clean'
	touch "$root/complete"
fi

rm -rf "$root/test"
mkdir -p "$root/test/bin" "$root/test/src"
CGO_ENABLED=0 go test -c -o "$root/test/bin/driver.test" "$package"
cp -R "$package/." "$root/test/src" # test data is read from the package's directory
# Its own process space: whatever the tests might leave running ends with it.
unshare --mount --pid --fork chroot "$root" sh -ec '
	mount -t proc proc /proc
	dpkg-query -W rabbitmq-server
	cd /test/src
	exec ../bin/driver.test -test.timeout 10m "$@"' sh "$@"
