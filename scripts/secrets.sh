#!/bin/sh
# Makes the key and the passwords of a deployment in a directory, those that are not there yet:
#   scripts/secrets.sh deploy/secrets
# None is ever replaced, and none is printed. Others are kept out by the directory; the files
# themselves are readable, since in a container they are read by users of all kinds.
set -eu
[ "$#" = 1 ] || { echo "usage: scripts/secrets.sh DIRECTORY" >&2; exit 2; }
dir=$1

umask 077
mkdir -p "$dir"
chmod 700 "$dir"

temp=
clean_up() { [ -z "$temp" ] || rm -f "$temp"; }
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# keep FILE COMMAND...: what the command prints becomes the file, as a whole or not at all.
keep() {
	file=$dir/$1
	shift
	if [ -s "$file" ]; then
		return
	fi
	temp=$(mktemp "$dir/.new-XXXXXX")
	"$@" >"$temp"
	[ -s "$temp" ] || { echo "scripts/secrets.sh: $file could not be made" >&2; exit 1; }
	chmod 444 "$temp"
	mv -f "$temp" "$file"
	temp=
}

signing_key() { head -c 48 /dev/urandom | base64; }
password() { head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
rabbitmq_user() { printf 'default_user = aether\ndefault_pass = %s\n' "$(cat "$dir/rabbitmq_password")"; }
redis_conf() { printf 'requirepass %s\n' "$(cat "$dir/redis_password")"; }

keep signing.hs256 signing_key
keep postgres_password password
keep rabbitmq_password password
keep rabbitmq_user.conf rabbitmq_user
keep redis_password password
keep redis.conf redis_conf
