#!/bin/sh
# Finds Chromium for the tests of the dashboard, or installs Debian's package where that is permitted.
# Never fails: without a browser the tests are skipped with a reason.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
command -v apt-get >/dev/null 2>&1 || { printf 'kafka2011: no Chromium, and no apt-get to install it\n' >&2; exit 0; }
root=''
if [ "$(id -u)" != 0 ]; then
    root='sudo -n'
    $root true 2>/dev/null || { printf 'kafka2011: no Chromium, and not allowed to install it\n' >&2; exit 0; }
fi
printf '==> installing chromium from the system'"'"'s packages\n' >&2
install='apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core'
# shellcheck disable=SC2086 # two words where sudo is needed
DEBIAN_FRONTEND=noninteractive $root $install >/dev/null 2>&1 \
    || { $root apt-get update -q >/dev/null 2>&1 && $root $install >/dev/null 2>&1; } \
    || printf 'kafka2011: chromium could not be installed\n' >&2
