#!/bin/sh
# Runs the container tests where an engine answers that can bear the deployment, and says in one line why not elsewhere.
# Builds the images first (nothing to do when they are there), and leaves nothing behind but them, however it ends.
#
#   deploy/tools/test-containers.sh PYTHON [PYTEST OPTIONS...]
set -eu
cd "$(dirname "$0")/../.."
PYTHON="$1"; shift
# The tests' page takes any free port, so nobody else's is in the way.
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

# In the background, where Ctrl-C does not reach it: it is told by SIGTERM to stop, and takes its deployment down. What
# it could not take down is swept here.
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
