#!/bin/sh
# Starts a Compose project and returns when all of it serves; else names what does not, with its last log lines.
# The order is Compose's (`depends_on` in docker-compose.yml). Containers that run already are left alone unless their
# settings changed.
#
#   deploy/tools/up.sh PROJECT [COMPOSE OPTIONS...]
set -eu
CDPATH= cd "$(dirname "$0")/../.."
PROJECT="$1"; shift
TIMEOUT_S="${AWAIT_TIMEOUT_S:-600}"
work=$(mktemp -d)
starting=
began=$(date +%s)
reported=0

fail() { printf 'kafka2011: %s\n' "$1" >&2; exit 1; }
clean_up() {
    [ -z "$starting" ] || { pkill -TERM -P "$starting"; kill "$starting"; } 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'fail "stopped while it was starting; make down removes what was started"' INT TERM

# Compose prints a line for every container and volume; they are shown only when something failed.
compose() { deploy/tools/compose.sh "$@" > "$work/said" 2>&1; }
containers() { docker ps --all --quiet --filter "label=com.docker.compose.project=$PROJECT" --filter label=com.docker.compose.oneoff=False "$@"; }
service_of() { docker inspect --format '{{index .Config.Labels "com.docker.compose.service"}}' "$1"; }
services_of() { for id in $(printf '%s\n' "$@" | sort -u); do service_of "$id"; done | sort | tr '\n' ' '; }
not_serving() {
    containers --filter health=starting
    containers --filter health=unhealthy --filter status=running
    containers --filter status=restarting
}
last_lines() {
    printf 'kafka2011: %s %s; its last lines:\n' "$(service_of "$1")" "$2" >&2
    docker logs --tail 5 "$1" >&2 2>&1 || true
}

compose "$@" up --no-start --remove-orphans || { tail -n 20 "$work/said" >&2; exit 1; }
count=$(containers | wc -l)
[ "$count" -gt 0 ] || fail "Compose made no container of the project $PROJECT; does COMPOSE_PROJECT_NAME name another?"
printf '==> starting %s containers; frontends start when all that is before them serves\n' "$count" >&2

# Compose waits for what frontends need, minutes on a slow machine: beside it, so that something is seen meanwhile.
{ compose "$@" up --detach --no-recreate && status=0 || status=$?; echo "$status" > "$work/status"; } &
starting=$!
while :; do
    has_ended=$([ ! -s "$work/status" ] || echo yes)
    waiting=$(not_serving)
    unstarted=$(containers --filter status=created)
    elapsed=$(($(date +%s) - began))
    [ -z "$waiting$unstarted" ] && [ -n "$has_ended" ] && break
    if [ "$elapsed" -ge "$TIMEOUT_S" ] || { [ -n "$has_ended" ] && [ "$(cat "$work/status")" != 0 ]; }; then
        for id in $(printf '%s\n' $waiting | sort -u); do last_lines "$id" "does not serve after $elapsed s"; done
        [ -z "$unstarted" ] || printf 'kafka2011: not started: %s\n' "$(services_of $unstarted)" >&2
        break
    fi
    if [ "$((elapsed - reported))" -ge 15 ]; then
        reported=$elapsed
        names=$(services_of $waiting $unstarted)
        printf '    %s s: waiting for %s\n' "$elapsed" "${names:-Compose, which starts what has ended}" >&2
    fi
    sleep 1
done
[ -n "$has_ended" ] || exit 1
starting=
[ "$(cat "$work/status")" = 0 ] || { tail -n 20 "$work/said" >&2; exit 1; }
[ -z "$waiting$unstarted" ] || exit 1
status=0
for id in $(containers --filter status=exited); do
    code=$(docker inspect --format '{{.State.ExitCode}}' "$id")
    [ "$code" = 0 ] || { last_lines "$id" "ended with status $code"; status=1; }
done
[ "$status" = 0 ] && printf '%s containers serve after %s s\n' "$(containers --filter status=running | wc -l)" "$elapsed" >&2
exit "$status"
