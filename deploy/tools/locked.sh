#!/bin/sh
# Prints the part of requirements.lock that some extras need, versions and hashes as they stand there.
#
#   deploy/tools/locked.sh EXTRA...    the project's own dependencies and those of these extras
#   deploy/tools/locked.sh build       what the build itself needs
#
# pip has no such option (docs/decisions/105-one-lock.md). The first names come from pyproject.toml, all others from the
# lock's own notes (`# via`). Were one missing, `pip install --require-hashes` would refuse the part.
set -eu
CDPATH= cd "$(dirname "$0")/../.."
[ "$*" = build ] && wanted=requires || wanted="dependencies $*"
awk -v wanted="$wanted" '
    function name_of(text) { sub(/[^A-Za-z0-9._-].*/, "", text); gsub(/[._]/, "-", text); return tolower(text) }
    BEGIN { count = split(wanted, lists); for (i = 1; i <= count; i++) is_wanted[lists[i]] = 1 }
    FNR == 1 { file++ }
    # pyproject.toml: the lists `NAME = [ "requirement", ... ]`, on one line or on several.
    file == 1 && match($0, /^[a-z]+ = \[/) { list = $1; found[list] = 1; sub(/^[a-z]+ = \[/, "") }
    file == 1 && list != "" {
        line = $0; sub(/#.*/, "", line); ended = line ~ /\]/
        if (list in is_wanted) while (match(line, /"[^"]+"/)) {
            needed[name_of(substr(line, RSTART + 1, RLENGTH - 2))] = 1; line = substr(line, RSTART + RLENGTH)
        }
        if (ended) list = ""
        next
    }
    # requirements.lock: `name==version \`, its hashes, and the packages that need it.
    file == 2 && /^[^ #]/ { package = name_of($1); if (!(package in text)) order[++packages] = package }
    file == 2 && /^ *#/ { parent = $NF; if (parent != "via") parents[package] = parents[package] " " name_of(parent); next }
    file == 2 { text[package] = text[package] $0 "\n" }
    END {
        for (list in is_wanted) if (!(list in found)) { print "kafka2011: pyproject.toml has no extra " list > "/dev/stderr"; exit 1 }
        do {
            grown = 0
            for (i = 1; i <= packages; i++) if (!(order[i] in needed)) {
                count = split(parents[order[i]], names, " ")
                for (j = 1; j <= count; j++) if (names[j] in needed) { needed[order[i]] = 1; grown = 1; break }
            }
        } while (grown)
        for (i = 1; i <= packages; i++) if (order[i] in needed) printf "%s", text[order[i]]
    }' pyproject.toml requirements.lock
