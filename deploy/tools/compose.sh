#!/bin/sh
# Runs Compose of either generation on this project's file: `docker compose` (v2), else docker-compose (1.29).
set -eu
CDPATH= cd "$(dirname "$0")/../.."
# On a busy machine the engine may take minutes to start twenty containers; 1.29 gives up after one otherwise.
export COMPOSE_HTTP_TIMEOUT="${COMPOSE_HTTP_TIMEOUT:-600}"
if docker compose version >/dev/null 2>&1; then exec docker compose "$@"; fi
if command -v docker-compose >/dev/null 2>&1; then exec docker-compose "$@"; fi
printf 'kafka2011: no Compose: install the docker-compose package (1.29 or 2)\n' >&2
exit 1
