#!/bin/sh
# Runs the container tests where the engine can run the deployment; elsewhere one line says why not.
# Builds the images first where they are out of date, and leaves nothing else behind, however it ends.
#
#   deploy/tools/test-containers.sh PYTHON [PYTEST OPTIONS...]
set -eu
CDPATH= cd "$(dirname "$0")/../.."
PYTHON="$1"; shift
# The dashboard of the tests takes any free port, so that a running deployment is not in the way.
export DASHBOARD_PORT=0

if ! why=$(deploy/tools/preflight.sh 2>&1); then
    printf 'container tests skipped: %s\n' "$(printf '%s\n' "$why" | sed -n '$s/^kafka2011: //p')" >&2
    exit 0
fi
printf 'container tests: the images (minutes the first time, seconds afterwards), then the whole deployment with faults\n' >&2
began=$(date +%s)
deploy/tools/images.sh
built=$(date +%s)
printf 'images ready after %s s\n' "$((built - began))" >&2

# In the background, where Ctrl-C does not reach it: SIGTERM makes it take its deployment down. The sweep removes what
# is left.
"$PYTHON" -m pytest "$@" &
tests=$!
trap 'kill -TERM "$tests" 2>/dev/null || true' INT TERM
status=0
while kill -0 "$tests" 2>/dev/null; do
    status=0
    wait "$tests" || status=$?
done
trap '' INT TERM
"$PYTHON" -m tests.docker.sweep || status=1
printf 'container tests: %s s\n' "$(($(date +%s) - built))" >&2
exit "$status"
