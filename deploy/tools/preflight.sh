#!/bin/sh
# Checks that the deployment can run in containers; else one line that says why, and status 1.
#
#   deploy/tools/preflight.sh [--engine-only | --chaos | --demo]
#
# --demo: for `make demo-docker`, which has an input of its own and takes any free port unless DASHBOARD_PORT is set.
# --chaos: also whether the engine's socket (ENGINE_SOCKET) can be given to the dashboard (deploy/docker/chaos.yml).
set -eu
CDPATH= cd "$(dirname "$0")/../.."
MEMORY_MIB_MIN=6400  # all limits of the default profile together
DISK_MB_MIN=5000

# Exits with 9 when a port of loopback cannot be listened at.
TRY='
import socket, sys
try:
    socket.create_server(("127.0.0.1", int(sys.argv[1]))).close()
except OSError:
    sys.exit(9)
'

fail() { printf 'kafka2011: %s\n' "$1" >&2; exit 1; }

command -v docker >/dev/null 2>&1 || fail "no container engine: the docker command is not installed (make demo runs everything without one)"
facts=$(timeout 30 docker info --format '{{.MemTotal}} {{.NCPU}} {{.OSType}} {{.DockerRootDir}}' 2>/dev/null) && [ -n "$facts" ] \
    || fail "no container engine answers (docker info fails); is it started, and may $(id -un) use it?"
deploy/tools/compose.sh version >/dev/null || exit 1
[ "${1:-}" = --engine-only ] && exit 0
mode="${1:-}"
if [ "$mode" = --chaos ]; then
    socket="${ENGINE_SOCKET:-/var/run/docker.sock}"
    [ -S "$socket" ] || fail "CHAOS=on gives the dashboard the engine's socket, and $socket is none (ENGINE_SOCKET names another)"
    case $(stat -L -c %A "$socket") in
        ?????w*) ;;
        *) fail "CHAOS=on gives the dashboard the engine's socket through its group, and the group of $socket may not write to it" ;;
    esac
fi

set -- $facts
[ "$3" = linux ] || fail "the engine runs $3 containers; Linux ones are needed"
memory=$(($1 / 1048576))
[ "$memory" -ge "$MEMORY_MIB_MIN" ] || fail "the engine has $memory MiB of memory; $MEMORY_MIB_MIN MiB are needed"
if [ -d "$4" ]; then
    free=$(stat -f -c '%a %S' "$4" | awk '{ printf "%d", $1 * $2 / 1048576 }')
    [ "$free" -ge "$DISK_MB_MIN" ] || fail "$free MB are free below $4; $DISK_MB_MIN MB are needed for images and data"
fi

input=$(deploy/tools/setting.sh FRONTEND_INPUT /dev/null)
[ "$mode" = --demo ] || case "$input" in
    /dev/null)
        [ "$(deploy/tools/setting.sh FRONTEND_SOURCE)" != access-log ] || fail "FRONTEND_SOURCE=access-log needs FRONTEND_INPUT, the file to send" ;;
    *:*) fail "FRONTEND_INPUT=$input: Compose cannot take a path with a colon" ;;
    /* | ./*)
        [ -f "$input" ] || fail "FRONTEND_INPUT=$input: no such file"
        case $(stat -L -c %A "$input") in
            ???????r*) ;;
            *) fail "FRONTEND_INPUT=$input: others may not read it, and containers run as user 10001; chmod o+r it, or give a copy" ;;
        esac ;;
    *) fail "FRONTEND_INPUT=$input: Compose takes that for a volume's name; write an absolute path or ./$input" ;;
esac

config=$(deploy/tools/compose.sh config 2>&1) || fail "docker-compose.yml or .env cannot be read: $(printf '%s\n' "$config" | tail -n 1)"
# A port that this project's own containers hold already is fine.
project=$(deploy/tools/setting.sh COMPOSE_PROJECT_NAME kafka2011)
running=$(docker ps --quiet --filter "label=com.docker.compose.project=$project")
if [ -z "$running" ] && { [ "$mode" != --demo ] || [ -n "$(deploy/tools/setting.sh DASHBOARD_PORT)" ]; }; then
    for port in $(printf '%s\n' "$config" | sed -nE 's/^ *- *"?127\.0\.0\.1:([0-9]+):.*/\1/p; s/^ *published: *"?([0-9]+)"?$/\1/p' | sort -u); do
        code=0
        python3 -c "$TRY" "$port" 2>/dev/null || code=$?
        [ "$code" = 9 ] || continue
        holder=$(docker ps --filter "publish=$port" --format '{{.Names}}' | sed -n 1p)
        fail "port $port of 127.0.0.1 is taken${holder:+ by $holder}; free it or choose another in .env"
    done
fi
