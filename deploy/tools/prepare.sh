#!/bin/sh
# Makes the virtual environment `.venv` ready: finds Python 3.11+, installs the locked dependencies of some
# extras with their hashes, builds the compiled loops, and finds (or installs) Java.
#
#   deploy/tools/prepare.sh             what the deployment needs: extras spark and web
#   deploy/tools/prepare.sh EXTRA...    these extras besides; `test` has what tests and checks need, and a class archive
#
# Does nothing when nothing has changed since the last time; an extra that was installed once stays.
# Where something is missing, one line names it, before anything is downloaded.
set -eu
CDPATH= cd "$(dirname "$0")/../.."
VENV="${VENV:-.venv}"
ROOM_MB=3000  # the environment takes 1000 of it; the rest is needed while PySpark is unpacked

fail() { printf 'kafka2011: %s\n' "$1" >&2; exit 1; }
step() { printf '==> %s\n' "$1" >&2; }

building=
# In the background Ctrl-C does not reach it: it would go on, beside that of the next `make`.
clean_up() { [ -z "$building" ] || kill "$building" 2>/dev/null || true; }
trap clean_up EXIT
trap 'exit 130' INT TERM

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

check_writable() {
    { mkdir -p "$1" && touch "$1/.probe" && rm -f "$1/.probe"; } 2>/dev/null \
        || fail "$1 is not writable for $(id -un): everything is installed there; use a clone in a directory of your own"
}

check_room() {
    # Not by df: its line has names of a disk and of a mount point, which may have spaces.
    free_mb=$(stat -f -c '%a %S' "$VENV" | awk '{ printf "%d", $1 * $2 / 1048576 }')
    [ "$free_mb" -ge "$ROOM_MB" ] \
        || fail "$PWD has $free_mb MB of free disk space and needs $ROOM_MB MB: delete something, or use a clone on another disk"
}

install() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }

# PySpark comes as source, so pip packs a wheel of its jars and unpacks it again: no need to compress them.
install_locked() {
    deploy/tools/locked.sh "$@" > "$VENV/part.lock"
    install --require-hashes --config-settings=--build-option=--compression=stored -r "$VENV/part.lock" \
        || fail "the dependencies could not be installed; see pip's message above"
}

[ "$(uname -s)" = Linux ] \
    || fail "Linux is needed, and this is $(uname -s): a virtual machine, WSL 2, or containers (docs/faq.md, \"On Windows or a Mac?\")"

# Made by another Python, or not to its end, it has no pip for the Python that it names now.
is_whole() { [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; }

# What is there is removed: of an environment alone.
make_environment() {
    if [ ! -e "$VENV/pyvenv.cfg" ] && [ -n "$(ls -A "$VENV")" ]; then
        fail "$VENV is there and is no virtual environment: remove it, or set VENV to another name"
    fi
    "$1" -m venv --clear "$VENV"
}

archive="$VENV/share/kafka2011/spark-classes.jsa"  # as services/warehouse/session.py looks for it
stamp="$VENV/.installed"  # the sum of what was installed, the extras, and the Python that has them
compiled=$(find -L kafka2011 -name '*.pyx' -o -name '*.pxd' -o -name '*.h' | LC_ALL=C sort)
sum=$(cat requirements.lock pyproject.toml setup.py $compiled | cksum)
read_extras() {
    extras=$(sed -n 2p "$stamp" 2>/dev/null || true)
    for extra in spark web "$@"; do
        case " $extras " in *" $extra "*) ;; *) extras="${extras:+$extras }$extra" ;; esac
    done
}
# As 3.11: a system's upgrade may put another Python behind the same name.
python_of_venv() { "$VENV/bin/python" --version 2>/dev/null | sed -n 's/^Python \([0-9]*\.[0-9]*\).*/\1/p'; }
wanted() { printf '%s\n%s\n%s' "$sum" "$extras" "$(python_of_venv)"; }
is_installed() { [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null || true)" = "$(wanted)" ]; }

# Two would install into the same directories, and one would remove what the other unpacks.
wait_for_others() {
    command -v flock >/dev/null 2>&1 || return 0
    exec 9< "$VENV"
    flock -n 9 || { step "waiting for another make, which prepares $VENV"; flock 9 || true; }
}

read_extras "$@"
# Another user's environment may have a Python that only that user may run.
if ! is_installed; then
    check_writable "$PWD"
    check_writable "$VENV"
    wait_for_others
    read_extras "$@"
fi
if ! is_installed; then
    [ -e "$stamp" ] || check_room
    if [ -x "$VENV/bin/python" ]; then
        "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' \
            || fail "$VENV has $("$VENV/bin/python" --version), and Python 3.11 or newer is needed: remove $VENV and repeat"
    fi
    if ! is_whole; then
        python=$(find_python) || fail "Python 3.11 to 3.14 is needed and was not found; install it or set PYTHON=/path/to/python3"
        step "making $VENV with $("$python" --version)"
        if ! make_environment "$python" >/dev/null; then
            apt_install python3-venv || fail "$python cannot make virtual environments; install its venv package (Debian: apt-get install python3-venv)"
            make_environment "$python" || fail "$python -m venv --clear $VENV failed"
        fi
    fi
    # Were this cut off, and the sources of before put back, that stamp would be right again and what is installed not.
    [ ! -e "$stamp" ] || printf 'unfinished\n%s\n' "$extras" > "$stamp"
    step "installing the locked dependencies ($extras): up to 600 MB to download, some minutes on a slow line"
    # Beside what it is for: /tmp may be small, and the check of the free space was of this disk.
    mkdir -p "$VENV/tmp"
    TMPDIR=$(CDPATH= cd "$VENV/tmp" && pwd)
    export TMPDIR
    install_locked build
    # An archive unpacked over an older tree brings sources that are older than what was built there.
    touch $compiled
    # While the large ones come. If it fails, it is built again below, which shows why.
    "$VENV/bin/python" setup.py -q build_ext --inplace >/dev/null 2>&1 &
    building=$!
    install_locked $extras
    step "building kafka2011"
    if wait "$building"; then export KAFKA2011_PURE_BUILD=1; fi
    install --no-deps --no-build-isolation -e . \
        || fail "kafka2011 itself could not be installed; see pip's message above"
    rm -rf "$VENV/tmp" "$VENV/part.lock"
    # A Scala prompt for Spark Connect, 60 MB, which nothing here starts.
    rm -rf "$VENV"/lib/python3*/site-packages/pyspark/jars/connect-repl "$archive"
    printf '%s\n' "$(wanted)" > "$stamp"
fi

if [ -n "${JAVA_HOME:-}" ] && [ ! -x "$JAVA_HOME/bin/java" ]; then
    fail "JAVA_HOME=$JAVA_HOME has no bin/java: unset it, or set it to a Java 17 or newer"
fi
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! "$java" -version >/dev/null 2>&1; then
    apt_install default-jre-headless && "$java" -version >/dev/null 2>&1 \
        || fail "Java 17 or newer is needed (ZooKeeper and Spark run on it); install it, for example: apt-get install default-jre-headless"
fi
# `openjdk version "17.0.15"`, and "1.8.0_402" of the older ones.
release=$("$java" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1)
[ "${release:-17}" -ge 17 ] \
    || fail "Java 17 or newer is needed (Spark runs on it), and $java is Java $release: install a newer one, or set JAVA_HOME to it"

# It takes half a minute to make: worth it only where Spark starts many times.
case " $* " in *" test "*)
    if [ ! -e "$archive" ]; then
        step "keeping the classes of Spark's JVM, for faster starts"
        "$VENV/bin/python" -m kafka2011.services.warehouse.class_archive >/dev/null || true
    fi
esac
