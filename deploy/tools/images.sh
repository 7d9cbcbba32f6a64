#!/bin/sh
# Builds the images of docker-compose.yml, and does nothing for those whose sources did not change.
#
#   deploy/tools/images.sh [--force]
#
# Two chains are built at a time, since half of the work waits for the network or the disk.
# The base is Debian 13: the image DEBIAN_IMAGE if the engine has it or can pull it, and else made
# from Debian packages (mmdebstrap, docker import). This machine's own apt sources, certificates and pip settings
# go into the build, so that it works behind a mirror or an inspecting proxy; pip's stay out of the images that run.
# Works with the classic builder (no BuildKit needed).
set -eu
cd "$(dirname "$0")/../.."
VERSION=$(deploy/tools/setting.sh KAFKA2011_VERSION dev)
DEBIAN_IMAGE="${DEBIAN_IMAGE:-debian:trixie-slim}"
SUITE=trixie
PULL_TIMEOUT_S="${PULL_TIMEOUT_S:-120}"
FORCE=
[ "${1:-}" = --force ] && FORCE=yes

fail() { printf 'kafka2011: %s\n' "$1" >&2; exit 1; }
step() { printf '==> %s\n' "$1" >&2; }

command -v docker >/dev/null 2>&1 || fail "no container engine: the docker command is not installed"
timeout 30 docker version --format '{{.Server.Version}}' >/dev/null 2>&1 \
    || fail "no container engine answers (docker version fails); is it started, and may $(id -un) use it?"

work=$(mktemp -d)
chain=
# A chain in the background must not go on building after Ctrl-C.
clean_up() {
    [ -z "$chain" ] || { pkill -TERM -P "$chain"; kill "$chain"; } 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

# --- what this machine needs to reach its package sources ------------------------------------------

# "URI label" of each Debian archive that apt uses here; nothing on other systems.
debian_archives() {
    command -v apt-get >/dev/null 2>&1 || return 0
    apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | sort -u
}

archive_of() { debian_archives | awk -v label="$1" '$2 == label && $1 ~ /^https?:/ { print $1; exit }'; }

# A deb822 file with the suites of the base at this machine's archives; nothing when it has none.
sources() {
    main=$(archive_of Debian)
    [ -n "$main" ] || return 0
    printf 'Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: main\n' "$main" "$SUITE" "$SUITE"
    security=$(archive_of Debian-Security)
    [ -n "$security" ] || return 0
    printf '\nTypes: deb\nURIs: %s\nSuites: %s-security\nComponents: main\n' "$security" "$SUITE"
}

# How apt fetches here: proxies, timeouts, checks of dates. Not its hooks, which name local commands.
apt_settings() {
    command -v apt-config >/dev/null 2>&1 || return 0
    apt-config dump | grep -E '^Acquire::(https?::(Proxy|Timeout|Verify|Pipeline)|Retries|Check-Valid-Until|Check-Date|ForceIPv4)' || true
}

pip_settings() {
    printf '[global]\n'
    { python3 -m pip config list 2>/dev/null || true; } \
        | sed -nE "s/^(:env:|global)\.(index-url|extra-index-url|trusted-host|proxy|default-timeout|timeout|retries)='(.*)'\$/\2 = \3/p" \
        | sed 's/^default-timeout/timeout/' | sort -u -t= -k1,1
}

make_context() {
    apt="$work/context/machine/etc/apt"
    certificates="$work/context/machine/usr/local/share/ca-certificates"
    mkdir -p "$apt/apt.conf.d" "$apt/sources.list.d" "$certificates"
    apt_settings > "$apt/apt.conf.d/90machine"
    sources > "$apt/sources.list.d/debian.sources"
    [ -s "$apt/sources.list.d/debian.sources" ] || rm "$apt/sources.list.d/debian.sources"
    for certificate in /usr/local/share/ca-certificates/*.crt; do
        [ ! -f "$certificate" ] || cp "$certificate" "$certificates/"
    done
    pip_settings > "$work/context/pip.conf"
    chmod -R a+rX "$work/context"
}

# --- the base --------------------------------------------------------------------------------------

have_image() { docker image inspect "$1" >/dev/null 2>&1; }

# Under a name of its own: what is made here must not pass for the published image.
make_debian() {
    step "$DEBIAN_IMAGE cannot be pulled: making a base from Debian packages"
    command -v mmdebstrap >/dev/null 2>&1 || {
        command -v apt-get >/dev/null 2>&1 && as_root env DEBIAN_FRONTEND=noninteractive sh -c \
            '{ apt-get install -y -q --no-install-recommends mmdebstrap || { apt-get update -q && apt-get install -y -q --no-install-recommends mmdebstrap; }; } >/dev/null 2>&1' \
            || fail "$DEBIAN_IMAGE cannot be pulled, and mmdebstrap, which can make a base, is not installed (Debian: apt-get install mmdebstrap)"
    }
    mirror="$apt/sources.list.d/debian.sources"
    [ -f "$mirror" ] || mirror=
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3 \
        --aptopt="$apt/apt.conf.d/90machine" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/etc/hostname "$1"/etc/resolv.conf' \
        ${mirror:+--customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*'} \
        ${mirror:+--customize-hook="copy-in '$mirror' /etc/apt/sources.list.d/"} \
        "$SUITE" "$work/base.tar" ${mirror:+"$mirror"} \
        || fail "mmdebstrap could not make the base; see its message above"
    docker import "$work/base.tar" "$1" >/dev/null
    rm "$work/base.tar"
}

# Sets DEBIAN_IMAGE to an image that the engine has.
debian() {
    have_image "$DEBIAN_IMAGE" && return 0
    made="kafka2011/debian:$SUITE"
    if [ -n "$FORCE" ] || ! have_image "$made"; then
        step "pulling $DEBIAN_IMAGE"
        timeout "$PULL_TIMEOUT_S" docker pull --quiet "$DEBIAN_IMAGE" >/dev/null 2>&1 && return 0
        make_debian "$made"
    fi
    DEBIAN_IMAGE="$made"
}

# --- building --------------------------------------------------------------------------------------

# image IMAGE SUM COMMAND...: run the command unless IMAGE was built from the same SUM.
image() {
    name="kafka2011/$1:$VERSION"; sum="$2"; shift 2
    if [ -z "$FORCE" ] && [ "$(docker image inspect --format '{{index .Config.Labels "kafka2011.sources"}}' "$name" 2>/dev/null)" = "$sum" ]; then
        return 0
    fi
    step "building $name"
    started=$(date +%s); log="$work/${name#*/}.log"
    "$@" --label "kafka2011.sources=$sum" --tag "$name" > "$log" 2>&1 || {
        tail -n 40 "$log" >&2
        fail "$name could not be built; the end of the builder's output is above"
    }
    printf '    %s took %s s\n' "$name" "$(($(date +%s) - started))" >&2
}

sum_of() { { for part in "$@"; do cat "$part"; done; } | sha256sum | cut -c1-16; }
# Of what is installed, so that a change elsewhere in the lock or in pyproject.toml builds nothing.
dependencies_sum() { { cat deploy/docker/dependencies.Dockerfile; deploy/tools/locked.sh "$@"; } | sha256sum | cut -c1-16; }
tree_sum() { find "$@" -type f ! -name '*.so' ! -name '*.c' ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16; }
build() { file="$1"; shift; docker build --force-rm -f "deploy/docker/$file" --build-arg VERSION="$VERSION" "$@" .; }
build_base() { docker build --force-rm -f deploy/docker/base.Dockerfile --build-arg DEBIAN_IMAGE="$DEBIAN_IMAGE" --target "$@" "$work/context"; }

make_context
debian
machine=$(tree_sum deploy/docker/base.Dockerfile && cd "$work/context" && tree_sum .)
base_sum=$(printf '%s %s' "$machine" "$(docker image inspect --format '{{.Id}}' "$DEBIAN_IMAGE")" | sha256sum | cut -c1-16)
image base "$base_sum" build_base base
image build "$base_sum" build_base build

project="$base_sum-$(tree_sum deploy/docker/project.Dockerfile deploy/docker/probe.py deploy/docker/disturb.py deploy/docker/spark deploy/docker/spark-submit deploy/tools/locked.sh requirements.lock pyproject.toml setup.py README.md \
    $(ls pyspark_kafka2011.py 2>/dev/null || true) spark-jobs kafka2011 broker consumer producer services)"
java="$base_sum-$(sum_of deploy/docker/java.Dockerfile)"
app="$base_sum-$(dependencies_sum web)"
spark="$java-$(dependencies_sum web spark)"

# The longer chain, and beside it everything that does not need it.
(
    image java "$java" build java.Dockerfile
    image spark-runtime "$spark" build dependencies.Dockerfile --build-arg BASE=kafka2011/java --build-arg EXTRAS="web spark"
) &
chain=$!
image app-runtime "$app" build dependencies.Dockerfile --build-arg BASE=kafka2011/base --build-arg EXTRAS=web
image project "$project" build project.Dockerfile
image app "$app-$project-$(sum_of deploy/docker/app.Dockerfile)" build app.Dockerfile --build-arg RUNTIME=kafka2011/app-runtime
image haproxy "$base_sum-$(sum_of deploy/docker/haproxy.Dockerfile deploy/docker/haproxy.cfg deploy/docker/probe.py)" build haproxy.Dockerfile
image prometheus "$base_sum-$(sum_of deploy/docker/prometheus.Dockerfile deploy/docker/prometheus.yml deploy/docker/probe.py)" build prometheus.Dockerfile
wait "$chain" || { chain=; exit 1; }
chain=
image spark "$spark-$project-$(sum_of deploy/docker/app.Dockerfile)" build app.Dockerfile --build-arg RUNTIME=kafka2011/spark-runtime

# What was replaced has no name any more.
for label in sources stage; do
    docker image prune --force --filter "label=kafka2011.$label" >/dev/null
done
