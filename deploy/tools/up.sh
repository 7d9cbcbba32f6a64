#!/bin/sh
# Starts a Compose project and returns when all of it serves. Frontends start last: before the brokers serve, they would
# send some messages twice. Containers that run already are left alone unless their settings changed.
#
#   deploy/tools/up.sh PROJECT [COMPOSE OPTIONS...]
set -eu
cd "$(dirname "$0")/../.."
PROJECT="$1"; shift
said=$(mktemp)
trap 'rm -f "$said"' EXIT
trap 'exit 1' INT TERM

# Compose prints a line for every container and volume; they are shown only when something failed.
compose() {
    deploy/tools/compose.sh "$@" > "$said" 2>&1 || {
        tail -n 20 "$said" >&2
        exit 1
    }
}
services() {
    docker ps --all --filter "label=com.docker.compose.project=$PROJECT" --filter label=com.docker.compose.oneoff=False "$@" \
        --format '{{.Label "com.docker.compose.service"}}' | sort -u
}

compose "$@" up --no-start --remove-orphans
created=$(services)
[ -n "$created" ] || { printf 'kafka2011: Compose made no container of the project %s; does COMPOSE_PROJECT_NAME name another?\n' "$PROJECT" >&2; exit 1; }
last=$(services --filter label=kafka2011.start=last)
first=$(printf '%s\n' "$created" | grep -vxF "${last:-none}" || true)
printf '==> starting %s containers\n' "$(printf '%s\n' "$created" | wc -l)" >&2
# shellcheck disable=SC2086 # names of services are single words
compose "$@" up --detach --no-recreate $first
deploy/tools/await-healthy.sh "$PROJECT" kafka2011.start=last
printf '==> starting %s\n' "$(printf '%s ' $last)" >&2
compose "$@" up --detach --no-recreate
deploy/tools/await-healthy.sh "$PROJECT"
