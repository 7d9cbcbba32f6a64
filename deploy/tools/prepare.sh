#!/bin/sh
# Makes the virtual environment `.venv` ready: finds Python 3.11+, installs the locked
# dependencies with their hashes, builds the compiled loops, and finds (or installs) Java.
# Does nothing when nothing has changed since the last time. Where something is missing, one line names it.
set -eu
cd "$(dirname "$0")/../.."
VENV="${VENV:-.venv}"

fail() { printf 'kafka2011: %s\n' "$1" >&2; exit 1; }
step() { printf '==> %s\n' "$1" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    step "installing $* from the system's packages"
    as_root env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 || { apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends "$@" >/dev/null; }' \
        sh "$@"
}

find_python() {
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.14; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    return 1
}

if [ ! -x "$VENV/bin/python" ]; then
    python=$(find_python) || fail "Python 3.11 to 3.14 is needed and was not found; install it or set PYTHON=/path/to/python3"
    step "making $VENV with $("$python" --version)"
    if ! "$python" -m venv "$VENV" >/dev/null 2>&1; then
        rm -rf "$VENV"
        apt_install python3-venv || fail "$python cannot make virtual environments; install its venv package (Debian: apt-get install python3-venv)"
        "$python" -m venv "$VENV" || fail "$python -m venv $VENV failed"
    fi
fi

stamp="$VENV/.installed"
compiled=$(find -L kafka2011 -name '*.pyx' -o -name '*.pxd' -o -name '*.h' | LC_ALL=C sort)
wanted=$(cat requirements.lock pyproject.toml setup.py $compiled | cksum)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
    step "installing the locked dependencies (about 500 MB the first time)"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock \
        || fail "the dependencies could not be installed; see pip's message above"
    step "building kafka2011"
    # An archive unpacked over an older tree brings sources that are older than what was built there.
    touch $compiled
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . \
        || fail "kafka2011 itself could not be installed; see pip's message above"
    printf '%s\n' "$wanted" > "$stamp"
fi

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! "$java" -version >/dev/null 2>&1; then
    apt_install default-jre-headless && java -version >/dev/null 2>&1 \
        || fail "Java 17 or newer is needed (ZooKeeper and Spark run on it); install it, for example: apt-get install default-jre-headless"
fi
