#!/bin/sh
# Builds the wheel, unpacks it away from the tree and runs the unit tests against it there, so that
# a file missing from the package list is found before a user finds it.
set -eu
cd "$(dirname "$0")/../.."
VENV="${VENV:-.venv}"
here=$(pwd)
rm -rf build/wheel && mkdir -p build/wheel/run
"$VENV/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel .
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target build/wheel/site build/wheel/kafka2011-*.whl
cp -r tests docs pyproject.toml build/wheel/run/
cd build/wheel/run
# Left out: what judges the tree (imports, the compose file, scripts, names in source files), not the package.
PYTHONPATH="$here/build/wheel/site" "$here/$VENV/bin/python" -m pytest -q -n 2 -p no:cacheprovider \
    --hypothesis-profile package \
    --ignore tests/unit/test_layout.py --ignore tests/unit/test_compose_lint.py --ignore tests/unit/test_prepare.py \
    --ignore tests/unit/containers/test_preflight.py --ignore tests/unit/containers/test_tools.py \
    --ignore tests/unit/containers/test_faults.py \
    --ignore tests/unit/dashboard/test_metrics_exist.py tests/unit
