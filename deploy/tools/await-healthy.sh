#!/bin/sh
# Waits until every container of a Compose project serves; says which do not, and their last lines.
#
#   deploy/tools/await-healthy.sh PROJECT [LABEL=VALUE of containers that are started later: they may not be, or have ended]
set -eu
PROJECT="$1"
LATER="${2:-}"
TIMEOUT_S="${AWAIT_TIMEOUT_S:-300}"
began=$(date +%s)
told=0

# Made, but not started, and should be.
unstarted() {
    later=$([ -z "$LATER" ] || containers --filter status=created --filter "label=$LATER")
    containers --filter status=created | grep -vxF "${later:-none}" || true
}
containers() { docker ps --all --quiet --filter "label=com.docker.compose.project=$PROJECT" "$@"; }
service_of() { docker inspect --format '{{index .Config.Labels "com.docker.compose.service"}}' "$1"; }

while :; do
    waiting=$(containers --filter health=starting; containers --filter health=unhealthy --filter status=running; unstarted; containers --filter status=restarting)
    elapsed=$(($(date +%s) - began))
    [ -n "$waiting" ] || break
    if [ "$elapsed" -ge "$TIMEOUT_S" ]; then
        for id in $(printf '%s\n' $waiting | sort -u); do
            printf 'kafka2011: %s does not serve after %s s; its last lines:\n' "$(service_of "$id")" "$elapsed" >&2
            docker logs --tail 5 "$id" >&2 2>&1 || true
        done
        exit 1
    fi
    if [ "$((elapsed - told))" -ge 15 ]; then
        told=$elapsed
        printf '    %s s: waiting for %s\n' "$elapsed" "$(for id in $(printf '%s\n' $waiting | sort -u); do service_of "$id"; done | sort | tr '\n' ' ')" >&2
    fi
    sleep 1
done
status=0
# Those that start later may lie there as an earlier run, or a `docker kill`, left them.
later=$([ -z "$LATER" ] || containers --filter "label=$LATER")
for id in $(containers --filter status=exited | grep -vxF "${later:-none}" || true); do
    code=$(docker inspect --format '{{.State.ExitCode}}' "$id")
    [ "$code" = 0 ] && continue
    printf 'kafka2011: %s ended with status %s; its last lines:\n' "$(service_of "$id")" "$code" >&2
    docker logs --tail 5 "$id" >&2 2>&1 || true
    status=1
done
[ "$status" = 0 ] && printf '%s containers serve after %s s\n' "$(containers --filter status=running | wc -l)" "$elapsed" >&2
exit "$status"
