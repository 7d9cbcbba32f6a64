#!/bin/sh
# Waits until every container of a Compose project serves; else names those that do not, with their last log lines.
#
#   deploy/tools/await-healthy.sh PROJECT [LABEL=VALUE]
#
# LABEL=VALUE: containers that are started later; they may be missing, or left stopped by an earlier run.
set -eu
PROJECT="$1"
LATER="${2:-}"
TIMEOUT_S="${AWAIT_TIMEOUT_S:-300}"
began=$(date +%s)
reported=0

# Created and not started, apart from those that start later.
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
    if [ "$((elapsed - reported))" -ge 15 ]; then
        reported=$elapsed
        printf '    %s s: waiting for %s\n' "$elapsed" "$(for id in $(printf '%s\n' $waiting | sort -u); do service_of "$id"; done | sort | tr '\n' ' ')" >&2
    fi
    sleep 1
done
status=0
# Those that start later may be there from an earlier run, or after a `docker kill`.
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
