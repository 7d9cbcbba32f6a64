#!/bin/sh
# Prints what Compose would take for a variable: the environment's value (empty: DEFAULT), else the one in .env, else DEFAULT.
#
#   deploy/tools/setting.sh NAME [DEFAULT]
set -eu
CDPATH= cd "$(dirname "$0")/../.."
eval "value=\${$1:-}; is_set=\${$1+yes}"
if [ -z "$is_set" ] && [ -f .env ]; then
    # The last line counts; quotes around the value and a comment behind it do not belong to it.
    value=$(sed -nE "s/\r\$//; s/^(export +)?$1=//; t found; b; :found; s/^\"([^\"]*)\".*/\1/p; t; s/^'([^']*)'.*/\1/p; t; s/ +#.*//; p" .env | tail -n 1)
fi
printf '%s\n' "${value:-${2:-}}"
