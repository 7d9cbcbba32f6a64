#!/bin/sh
# Runs a command with the settings of profile `object-store` in its environment: those of deploy/docker/object-store.env,
# and credentials of the store, which are made at the first run and kept in .object-store-keys (only the owner reads it).
#
#   deploy/tools/with_store.sh COMMAND...
set -eu
CDPATH= cd "$(dirname "$0")/../.."
KEYS=.object-store-keys
if [ -z "$(deploy/tools/setting.sh STORE_SECRET)" ]; then
    random() { od -An -N "$1" -tx1 /dev/urandom | tr -d ' \n'; }
    [ -s "$KEYS" ] || (umask 077; printf 'STORE_KEY_ID=%s\nSTORE_SECRET=%s\n' "$(random 10)" "$(random 20)" > "$KEYS")
    set -a; . "./$KEYS"; set +a
fi
profiles=$(deploy/tools/setting.sh COMPOSE_PROFILES)
set -a; . ./deploy/docker/object-store.env; set +a
COMPOSE_PROFILES="${profiles:+$profiles,}$COMPOSE_PROFILES"
exec "$@"
