#!/bin/sh
# Builds the images of docker-compose.yml on any machine: Compose does it, with a base that is made here. Only what
# changed is built anew, by the builder's cache.
#
#   deploy/tools/images.sh [--force] [SERVICE...]     --force makes the base anew; services: only their images
#
# The base is Debian 13: the image BASE_IMAGE if the engine has it or can pull it, and else made
# from Debian packages (mmdebstrap, docker import). This machine's own apt sources and certificates go into it, so that
# it works behind a mirror or an inspecting proxy; pip's settings are build arguments, and in no image that runs.
# Works with the classic builder (no BuildKit needed).
set -eu
CDPATH= cd "$(dirname "$0")/../.."
VERSION=$(deploy/tools/setting.sh KAFKA2011_VERSION dev)
OURS=localhost/kafka2011  # no registry has such a name
BASE="$OURS/base:$VERSION"
DEBIAN_IMAGE=$(deploy/tools/setting.sh BASE_IMAGE debian:trixie-slim)
# As docs/containers.md says, it may name what this script made.
[ "$DEBIAN_IMAGE" != "$BASE" ] || DEBIAN_IMAGE=debian:trixie-slim
SUITE=trixie
PULL_TIMEOUT_S="${PULL_TIMEOUT_S:-120}"
FORCE=
[ "${1:-}" != --force ] || { FORCE=yes; shift; }

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

# pip's settings of this machine, where the environment has none, as build arguments of docker-compose.yml.
pip_settings() {
    for name in index-url extra-index-url trusted-host proxy; do
        value=$(printf '%s' "$(python3 -m pip config get "global.$name" 2>/dev/null)" | tr '\n' ' ')
        variable="PIP_$(printf '%s' "$name" | tr 'a-z-' 'A-Z_')"
        eval "export $variable=\"\${$variable:-\$value}\""
    done
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
    made="$OURS/debian:$SUITE"
    if [ -n "$FORCE" ] || ! have_image "$made"; then
        step "pulling $DEBIAN_IMAGE"
        timeout "$PULL_TIMEOUT_S" docker pull --quiet "$DEBIAN_IMAGE" >/dev/null 2>&1 && return 0
        make_debian "$made"
    fi
    DEBIAN_IMAGE="$made"
}

# --- building --------------------------------------------------------------------------------------

# run WHAT COMMAND...: its output is shown only when it fails.
run() {
    what="$1"; shift
    started=$(date +%s); log="$work/$what.log"
    "$@" > "$log" 2>&1 || {
        tail -n 40 "$log" >&2
        fail "$what could not be built; the end of the builder's output is above"
    }
    printf '    %s: %s s\n' "$what" "$(($(date +%s) - started))" >&2
}
# Each image is built by the service of docker-compose.yml that has its `build`.
compose_build() { COMPOSE_PROFILES=observability,object-store deploy/tools/compose.sh build "$@"; }
# The largest of the others, for those that ask for it.
case ",$(deploy/tools/setting.sh COMPOSE_PROFILES)," in
    *,object-store,*) store=object-store ;;
    *) store= ;;
esac

make_context
debian
pip_settings
step "building the images on $DEBIAN_IMAGE, where something changed"
run base docker build --force-rm -f deploy/docker/base.Dockerfile --build-arg DEBIAN_IMAGE="$DEBIAN_IMAGE" --tag "$BASE" "$work/context"
export BASE_IMAGE="$BASE"
if [ $# -gt 0 ]; then
    run "$1" compose_build "$@"
    exit 0
fi
# First what both chains need.
run wheel docker build --force-rm -f deploy/docker/Dockerfile --build-arg BASE_IMAGE="$BASE" \
    --build-arg PIP_INDEX_URL --build-arg PIP_EXTRA_INDEX_URL --build-arg PIP_TRUSTED_HOST --build-arg PIP_PROXY \
    --target project --tag "$OURS/build:$VERSION" .
# The longer chain, and beside it everything that does not need it.
run spark compose_build zookeeper-live &
chain=$!
run others compose_build broker-1 balancer prometheus $store
wait "$chain" || { chain=; exit 1; }
chain=

# What was replaced has no name any more. Stages between have none either: the builder's cache needs the last ones.
docker image prune --force --filter label=kafka2011.stage=image >/dev/null
docker image prune --force --filter label=kafka2011.stage=project --filter until=168h >/dev/null
