#!/bin/sh
# The deployment of docker-compose.yml as plain processes of this machine, for trying and testing:
# two gateways behind a load balancer, with RabbitMQ, PostgreSQL and Redis of their own.
#
#   scripts/local-stack.sh up [PART...]      starts what does not run; without parts, everything
#   scripts/local-stack.sh status            lists the parts; exits 1 if one does not run
#   scripts/local-stack.sh down [PART...]    ends what up has started, and nothing else
#
# Parts: postgres redis rabbitmq migrate gateway-1 gateway-2 balancer. By the environment:
#   STACK_DIR      the one directory for everything (.stack); remove it when the stack is down
#   STACK_PORT     the first of its 13 ports, all of them on 127.0.0.1 (15050)
#   STACK_GATEWAY  the program to run; otherwise bin/gateway is built
#   STACK_AETHER_...
#                  is AETHER_... for the gateways, and wins over what is set here; AETHER_... itself,
#                  which a terminal may have set for other commands, does not reach them
set -eu
dir=${STACK_DIR:-}
case $dir in
'' | /*) ;;
*) dir=$PWD/$dir ;;
esac
cd "$(dirname "$0")/.."
dir=${dir:-$PWD/.stack}
first=${STACK_PORT:-15050}
all="postgres redis rabbitmq migrate gateway-1 gateway-2 balancer"

fail() {
	echo "scripts/local-stack.sh: $*" >&2
	exit 1
}

usage() {
	sed -n '5,16s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

case $first in
'' | *[!0-9]*) fail "STACK_PORT is not a number: $first" ;;
esac
[ "$first" -gt 0 ] && [ "$first" -le 65523 ] || fail "STACK_PORT must leave room for 13 ports: $first"
port() { echo $((first + $1)); }
grpc=$(port 0) http=$(port 1)
grpc_1=$(port 2) http_1=$(port 3) ops_1=$(port 4)
grpc_2=$(port 5) http_2=$(port 6) ops_2=$(port 7)
postgres=$(port 8) redis=$(port 9) stream=$(port 10) distribution=$(port 11) names=$(port 12)

# settings makes AETHER_... of STACK_AETHER_..., and of nothing else that was in the environment.
settings() {
	theirs=
	for name in $(env | sed -n 's/^\(AETHER_[A-Za-z0-9_]*\)=.*/\1/p' | sort -u); do
		unset "$name"
		theirs="$theirs $name"
	done
	[ -z "$theirs" ] || echo "scripts/local-stack.sh: not for these gateways, left out:$theirs (STACK_AETHER_... is for them)" >&2
	for name in $(env | sed -n 's/^STACK_\(AETHER_[A-Za-z0-9_]*\)=.*/\1/p' | sort -u); do
		eval "export $name=\"\${STACK_$name}\""
	done
}

# Processes. What up has started is in pids/: the process and when it began, by which it is known
# even if its id were used again.

# began PID prints when a process began, in the kernel's count; nothing if there is none.
began() {
	# The name of the program, in parentheses, may hold blanks.
	sed -n 's/^.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

# pid_of PROCESS prints the id of a process that runs.
pid_of() {
	[ -e "$dir/pids/$1" ] || return 0
	read -r pid at <"$dir/pids/$1"
	# A zombie has ended.
	if [ -n "$at" ] && [ "$(began "$pid")" = "$at" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null; then
		echo "$pid"
	fi
}

# begin PROCESS COMMAND... starts a process that outlives this script and its terminal.
begin() {
	name=$1
	shift
	[ -z "$(pid_of "$name")" ] || return 0
	setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null &
	pid=$!
	echo "$pid $(began "$pid")" >"$dir/pids/$name"
}

# finish PROCESS SIGNAL SECONDS ends a process, by force if it takes longer.
finish() {
	pid=$(pid_of "$1")
	if [ -n "$pid" ]; then
		kill -s "$2" "$pid" 2>/dev/null || true
		tenths=$(($3 * 10))
		while [ -n "$(pid_of "$1")" ] && [ "$tenths" -gt 0 ]; do
			sleep 0.1
			tenths=$((tenths - 1))
		done
		if [ -n "$(pid_of "$1")" ]; then
			echo "scripts/local-stack.sh: $1 does not end; killing it" >&2
			kill -s KILL "$pid" 2>/dev/null || true
		fi
	fi
	rm -f "$dir/pids/$1"
}

# await PROCESS SECONDS COMMAND... waits until the command succeeds, as long as the process runs.
await() {
	name=$1
	tenths=$(($2 * 10))
	shift 2
	until "$@" >/dev/null 2>&1; do
		if [ -z "$(pid_of "$name")" ]; then
			tail -n 20 "$dir/log/$name.log" >&2
			fail "$name has ended; its log is $dir/log/$name.log"
		fi
		if [ "$tenths" -le 0 ]; then
			tail -n 20 "$dir/log/$name.log" >&2
			fail "$name is not ready; its log is $dir/log/$name.log"
		fi
		sleep 0.1
		tenths=$((tenths - 1))
	done
}

need() {
	command -v "$1" >/dev/null || fail "$1 is not installed: run scripts/deps.sh"
}

# PostgreSQL refuses root.
postgres_bin() {
	found=
	for initdb in /usr/lib/postgresql/*/bin/initdb; do
		[ -x "$initdb" ] && found=$(dirname "$initdb")
	done
	[ -n "$found" ] || fail "postgresql is not installed: run scripts/deps.sh"
	echo "$found"
}

as_postgres() {
	if [ "$(id -u)" = 0 ]; then
		set -- setpriv --reuid postgres --regid postgres --clear-groups "$@"
	fi
	"$@"
}

start_postgres() {
	bin=$(postgres_bin)
	data=$dir/postgres
	if ! [ -e "$data/PG_VERSION" ]; then
		mkdir -p "$data"
		if [ "$(id -u)" = 0 ]; then
			chown postgres "$data"
			as_postgres test -x "$data" ||
				fail "the user postgres cannot reach $data: choose a STACK_DIR in a place that all users can enter"
		fi
		# The password is read from what is opened here: the server's user cannot enter the directory.
		as_postgres "$bin/initdb" -D "$data" -U aether -A scram-sha-256 --pwfile=/dev/stdin -E UTF8 --locale=C --no-sync \
			<"$dir/secrets/postgres_password" >>"$dir/log/postgres.log" 2>&1 ||
			fail "PostgreSQL could not be set up; see $dir/log/postgres.log"
	fi
	set -- "$bin/postgres" -D "$data" -p "$postgres" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
		-c fsync=off -c dynamic_shared_memory_type=mmap -c shared_buffers=32MB
	if [ "$(id -u)" = 0 ]; then
		set -- setpriv --reuid postgres --regid postgres --clear-groups "$@"
	fi
	begin postgres "$@"
}

ready_postgres() {
	bin=$(postgres_bin)
	await postgres 60 "$bin/pg_isready" -q -h 127.0.0.1 -p "$postgres"
	PGPASSWORD=$(cat "$dir/secrets/postgres_password")
	export PGPASSWORD
	# Whether it exists already is seen only in the answer.
	"$bin/createdb" -h 127.0.0.1 -p "$postgres" -U aether aether 2>>"$dir/log/postgres.log" || true
	await postgres 10 "$bin/psql" -X -q -h 127.0.0.1 -p "$postgres" -U aether -d aether -c 'select 1'
	unset PGPASSWORD
}

start_redis() {
	need redis-server
	mkdir -p "$dir/redis"
	begin redis redis-server "$dir/secrets/redis.conf" --bind 127.0.0.1 --port "$redis" --dir "$dir/redis" \
		--save '' --appendonly no --maxmemory-policy noeviction
}

redis_answers() {
	REDISCLI_AUTH=$(cat "$dir/secrets/redis_password") redis-cli -h 127.0.0.1 -p "$redis" ping | grep -q PONG
}

ready_redis() { await redis 20 redis_answers; }

# RabbitMQ needs its name server beside it.
start_rabbitmq() (
	server=
	for file in /usr/lib/rabbitmq/bin/rabbitmq-server /usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server /opt/rabbitmq/sbin/rabbitmq-server; do
		[ -z "$server" ] && [ -x "$file" ] && server=$file
	done
	[ -n "$server" ] || fail "rabbitmq-server is not installed: run scripts/deps.sh"
	need epmd
	home=$dir/rabbitmq
	mkdir -p "$home/mnesia" "$home/log" "$home/config"
	chmod 700 "$home" # its configuration holds the password
	[ -e "$home/.erlang.cookie" ] || (umask 277 && head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$home/.erlang.cookie")
	cp deploy/rabbitmq/enabled_plugins "$home/enabled_plugins"
	# The deployment's own settings, with the ports and the disk of this machine.
	{
		sed -e "s/^\(stream.listeners.tcp.1 =\).*/\1 127.0.0.1:$stream/" -e "s/^\(stream.advertised_host =\).*/\1 127.0.0.1/" \
			-e "s/^\(stream.advertised_port =\).*/\1 $stream/" -e 's/^\(disk_free_limit.absolute =\).*/\1 50MB/' \
			deploy/rabbitmq/rabbitmq.conf
		echo "log.console = true"
		echo "log.console.level = warning"
		echo "log.file = false"
		echo "vm_memory_high_watermark.absolute = 1GB"
		cat "$dir/secrets/rabbitmq_user.conf"
	} >"$home/rabbitmq.conf"
	: >"$home/rabbitmq-env.conf"
	# The Erlang machine goes through all descriptors that it might have whenever it starts a program.
	most=$(ulimit -n)
	if [ "$most" = unlimited ] || [ "$most" -gt 65536 ]; then
		ulimit -n 65536
	fi
	set -- env -i PATH="$PATH" LANG=C.UTF-8 HOME="$home" ERL_CRASH_DUMP="$home/log/erl_crash.dump" ERL_EPMD_PORT="$names" ERL_EPMD_ADDRESS=127.0.0.1 \
		RABBITMQ_NODENAME="stack$first@localhost" \
		RABBITMQ_DIST_PORT="$distribution" RABBITMQ_MNESIA_BASE="$home/mnesia" RABBITMQ_LOG_BASE="$home/log" \
		RABBITMQ_PID_FILE="$home/pid" RABBITMQ_CONF_ENV_FILE="$home/rabbitmq-env.conf" RABBITMQ_CONFIG_FILE="$home/rabbitmq" \
		RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config" RABBITMQ_GENERATED_CONFIG_DIR="$home/config" \
		RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" RABBITMQ_ALLOW_INPUT=1 \
		RABBITMQ_SERVER_START_ARGS='-noinput +B i' \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
	begin epmd "$@" epmd -port "$names" -address 127.0.0.1
	begin rabbitmq "$@" "$server"
)

# listens PORT asks the kernel's table: RabbitMQ's own tools take seconds.
listens() {
	grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$1") [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

stream_listens() { listens "$stream"; }

ready_rabbitmq() { await rabbitmq 120 stream_listens; }

gateway() {
	if [ -n "${STACK_GATEWAY:-}" ]; then
		echo "$STACK_GATEWAY"
	else
		echo "$PWD/bin/gateway"
	fi
}

# configure sets what a gateway is told by its environment, as docker-compose.yml does.
configure() {
	set_default AETHER_POSTGRES_URL "postgres://aether@127.0.0.1:$postgres/aether?sslmode=disable"
	set_default AETHER_POSTGRES_PASSWORD_FILE "$dir/secrets/postgres_password"
	set_default AETHER_RABBITMQ_STREAM_URL "rabbitmq-stream://aether@127.0.0.1:$stream/%2f"
	set_default AETHER_RABBITMQ_PASSWORD_FILE "$dir/secrets/rabbitmq_password"
	set_default AETHER_REDIS_URL "redis://127.0.0.1:$redis/0"
	set_default AETHER_REDIS_PASSWORD_FILE "$dir/secrets/redis_password"
	set_default AETHER_JWT_KEY_FILE "$dir/secrets/signing.hs256"
}

set_default() {
	eval "[ -n \"\${$1:-}\" ] || $1=\$2"
	# shellcheck disable=SC2163 # the variable that $1 names
	export "$1"
}

# The gateways start after it: tables that are missing are nothing that they wait for.
start_migrate() {
	ready_postgres
	(
		configure
		"$(gateway)" migrate up >>"$dir/log/migrate.log" 2>&1
	) || {
		tail -n 5 "$dir/log/migrate.log" >&2
		fail "the tables could not be made"
	}
}

ready_migrate() { :; }

start_gateway() {
	[ -z "$(pid_of "gateway-$1")" ] || return 0
	# The line "ready" of this start, and not of an earlier one, is waited for.
	[ ! -e "$dir/log/gateway-$1.log" ] || mv -f "$dir/log/gateway-$1.log" "$dir/log/gateway-$1.log.old"
	(
		configure
		AETHER_INSTANCE_ID=gateway-$1 AETHER_GRPC_ADDR=127.0.0.1:$2 AETHER_HTTP_ADDR=127.0.0.1:$3 AETHER_OPS_ADDR=127.0.0.1:$4
		export AETHER_INSTANCE_ID AETHER_GRPC_ADDR AETHER_HTTP_ADDR AETHER_OPS_ADDR
		begin "gateway-$1" "$(gateway)" serve
	)
}

start_gateway_1() { start_gateway 1 "$grpc_1" "$http_1" "$ops_1"; }
start_gateway_2() { start_gateway 2 "$grpc_2" "$http_2" "$ops_2"; }
ready_gateway_1() { await gateway-1 120 grep -q '^ready grpc=' "$dir/log/gateway-1.log"; }
ready_gateway_2() { await gateway-2 120 grep -q '^ready grpc=' "$dir/log/gateway-2.log"; }

start_balancer() {
	need haproxy
	(
		export BALANCER_GRPC="127.0.0.1:$grpc" BALANCER_HTTP="127.0.0.1:$http"
		export GATEWAY_1_HOST=127.0.0.1 GATEWAY_1_GRPC_PORT="$grpc_1" GATEWAY_1_HTTP_PORT="$http_1"
		export GATEWAY_2_HOST=127.0.0.1 GATEWAY_2_GRPC_PORT="$grpc_2" GATEWAY_2_HTTP_PORT="$http_2"
		begin balancer haproxy -db -f deploy/haproxy.cfg
	)
}

balanced() { "$(gateway)" health --http-addr "127.0.0.1:$http"; }

ready_balancer() { await balancer 120 balanced; }

# check_ports PART says in time which port something else has.
check_ports() {
	[ -z "$(pid_of "$1")" ] || return 0
	case $1 in
	postgres) set -- "$1" "$postgres" ;;
	redis) set -- "$1" "$redis" ;;
	rabbitmq)
		set -- "$1" "$stream" "$distribution"
		[ -n "$(pid_of epmd)" ] || set -- "$@" "$names"
		;;
	gateway-1) set -- "$1" "$grpc_1" "$http_1" "$ops_1" ;;
	gateway-2) set -- "$1" "$grpc_2" "$http_2" "$ops_2" ;;
	balancer) set -- "$1" "$grpc" "$http" ;;
	*) return 0 ;;
	esac
	part=$1
	shift
	for port in "$@"; do
		! listens "$port" || fail "port $port of $part is taken by another process: end that one, or choose another STACK_PORT, the first of 13 ports"
	done
}

up() {
	settings
	for part in $parts; do
		check_ports "$part"
	done
	umask 022 # the database's user has to get through
	mkdir -p "$dir" "$dir/pids" "$dir/log"
	scripts/secrets.sh "$dir/secrets"
	if [ -z "${STACK_GATEWAY:-}" ]; then
		make --no-print-directory build >&2
	fi
	for part in $parts; do
		"start_$(echo "$part" | tr - _)"
	done
	for part in $parts; do
		"ready_$(echo "$part" | tr - _)"
	done
	[ "$parts" = "$all" ] || return 0
	cat <<END
ready grpc=127.0.0.1:$grpc http=127.0.0.1:$http
In another terminal, to use it:
  export AETHER_ADDR=127.0.0.1:$grpc AETHER_JWT_KEY_FILE=$dir/secrets/signing.hs256
The gateways themselves: gRPC 127.0.0.1:$grpc_1 and 127.0.0.1:$grpc_2, metrics http://127.0.0.1:$ops_1/metrics and http://127.0.0.1:$ops_2/metrics
Logs are in $dir/log.
END
}

down() {
	for part in $parts; do
		case $part in
		migrate) ;;
		balancer) finish balancer TERM 5 ;;
		gateway-*) finish "$part" TERM 30 ;;
		redis) finish redis TERM 10 ;;
		postgres) finish postgres INT 30 ;;
		rabbitmq)
			finish rabbitmq TERM 30
			finish epmd TERM 5
			;;
		esac
	done
}

status() {
	code=0
	for part in $parts; do
		[ "$part" != migrate ] || continue
		pid=$(pid_of "$part")
		if [ -n "$pid" ]; then
			printf '%-10s  running  %s\n' "$part" "$pid"
		else
			printf '%-10s  not running\n' "$part"
			code=1
		fi
	done
	return "$code"
}

[ "$#" -ge 1 ] || usage
command=$1
shift
parts=$all
[ "$#" = 0 ] || parts=$*
for part in $parts; do
	case " $all " in
	*" $part "*) ;;
	*) fail "there is no part $part; there are: $all" ;;
	esac
done
case $command in
up) up ;;
down)
	# Those that need others end before them.
	reversed=
	for part in $parts; do
		reversed="$part $reversed"
	done
	parts=$reversed
	down
	;;
status) status ;;
*) usage ;;
esac
