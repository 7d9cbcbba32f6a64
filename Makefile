# Every target sets up what it needs on a fresh machine: .venv, the locked dependencies, Java.
SHELL := /bin/sh
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
export VENV

# What `make demo` reads: empty for synthetic activity, or a web access log.
INPUT ?=

# How many kills `make test-faults` does in each of its modes.
COUNT ?= 100

.PHONY: help prepare check format test test-unit test-unit-pure test-wheel test-integration
.PHONY: test-faults demo live bench lock clean

help:
	@echo "make demo [INPUT=access.log]  run the whole deployment, load the warehouse, prove the audit"
	@echo "make test                     every test (unit in both builds, wheel, integration)"
	@echo "make test-unit                the fast ones: no Java, no Docker, under a minute"
	@echo "make check                    format, lint, types, import arrows"
	@echo "make live [CHAOS=on]          keep it all running until Ctrl-C; http://127.0.0.1:8088"
	@echo "make test-faults COUNT=100    kill brokers under load again and again"
	@echo "make up, make down            the same deployment in containers (docs/containers.md)"
	@echo "make bench                    the table of docs/performance.md, measured here"
	@echo "make lock                     resolve the dependencies anew"

prepare:
	@tools/prepare.sh

check: prepare
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(PYTHON_IN) -m pytest -q tests/unit/test_layout.py

format: prepare
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

test-unit: prepare
	$(PYTHON_IN) -m pytest -q -n 2 tests/unit

# The same unit tests once more with the pure twins of the compiled loops.
test-unit-pure: prepare
	KAFKA2011_PURE=1 $(PYTHON_IN) -m pytest -q -n 2 tests/unit/protocol tests/unit/events tests/unit/broker

# The built wheel, unpacked away from the tree, must pass the unit tests too.
test-wheel: prepare
	tools/test-wheel.sh

test-integration: prepare
	$(PYTHON_IN) -m pytest -q --no-skips -n 2 tests/integration tests/faults

# A long campaign: SIGKILL under load COUNT times in each mode, SEED=n to repeat one.
test-faults: prepare
	FAULT_ROUNDS=$(COUNT) FAULT_SEED=$(or $(SEED),0) $(PYTHON_IN) -m pytest -q --timeout 0 tests/faults

test: prepare
	$(MAKE) test-unit
	$(MAKE) test-unit-pure
	$(MAKE) test-wheel
	$(MAKE) test-integration

demo: prepare
	$(PYTHON_IN) -m cli embedded demo $(if $(INPUT),--input "$(INPUT)")

# CHAOS=on lets the page kill, pause and cut; PORT chooses the page's port.
PORT ?= 8088
CHAOS ?= off
live: prepare
	$(PYTHON_IN) -m cli embedded up --port $(PORT) --set embedded.chaos=$(CHAOS)

bench: prepare
	$(PYTHON_IN) -m benchmarks

lock:
	uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras \
	    --generate-hashes --no-header -q -o requirements.lock

clean:
	rm -rf var build dist .pytest_cache .mypy_cache .ruff_cache

include docker/containers.mk
