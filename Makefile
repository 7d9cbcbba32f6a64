# Every target sets up what it needs on a fresh machine: .venv, the locked dependencies, Java.
SHELL := /bin/sh
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
export VENV

# What `make demo` reads: empty for synthetic activity, or a web access log.
INPUT ?=

# How many kills `make test-faults` does in each of its modes.
COUNT ?= 100

.PHONY: test-original help prepare check format test test-unit test-unit-pure test-wheel test-integration
.PHONY: test-audit test-browser soak-dashboard test-large-load test-faults demo live bench bench-large bench-peers fuzz soak reports lock clean

help:
	@echo "make demo [INPUT=access.log]  run the whole deployment, load the warehouse, prove the audit"
	@echo "make test                     every test (unit in both builds, wheel, integration, containers)"
	@echo "make test-unit                the fast ones: no Java, no Docker, under a minute"
	@echo "make check                    format, lint, types, import arrows"
	@echo "make live [CHAOS=on]          keep it all running until Ctrl-C; http://127.0.0.1:8088"
	@echo "make test-browser             the dashboard in a real browser"
	@echo "make test-faults COUNT=100    kill brokers under load again and again"
	@echo "make up, make down            the same deployment in containers (docs/containers.md)"
	@echo "make fuzz [SECONDS=60]        mutated bytes against the codec's twins and a live broker"
	@echo "make soak [MINUTES=10]        load and restarts; memory and descriptors must stay flat"
	@echo "make bench                    the table of docs/performance.md, measured here"
	@echo "make bench-large              the same with logs of 20 and 50 GB; needs 55 GB free"
	@echo "make bench-peers              beside Redis, NATS, RabbitMQ, ActiveMQ, those installed here"
	@echo "make reports                  reports on the member activity that make demo left under var/"
	@echo "make lock                     resolve the dependencies anew"

prepare:
	@deploy/tools/prepare.sh

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
	KAFKA2011_PURE=1 $(PYTHON_IN) -m pytest -q -n 2 tests/unit/protocol tests/unit/events tests/unit/broker tests/unit/producer

# The source archive, the wheel built from it and an editable install, each in an environment of its own.
test-wheel: prepare
	$(PYTHON_IN) -m pytest -q tests/packaging

test-integration: prepare
	$(PYTHON_IN) -m pytest -q --no-skips -n 2 tests/integration tests/faults

# Beside Kafka 0.7.2 itself, whose classes you have (docs/testing.md).
ORIGINAL_CLASSPATH ?=
test-original: prepare
	@test -n "$(ORIGINAL_CLASSPATH)" || \
	    { echo "say where Kafka 0.7.2's classes are: ORIGINAL_CLASSPATH=... (docs/testing.md)"; exit 2; }
	ORIGINAL_CLASSPATH="$(ORIGINAL_CLASSPATH)" $(PYTHON_IN) -m pytest -q --timeout 600 tests/original

# The dashboard in Debian's Chromium, over a real deployment; where none can be had each test says so.
test-browser: prepare
	@deploy/tools/browser.sh
	$(PYTHON_IN) -m pytest -q --no-skips tests/browser

# Tabs left open on their streams for SOAK_S seconds must not grow, nor the server behind them.
SOAK_S ?= 3600
soak-dashboard: prepare
	@deploy/tools/browser.sh
	SOAK_S=$(SOAK_S) $(PYTHON_IN) -m pytest -q -s --timeout 0 tests/browser/test_soak.py -k stream

# A long campaign: SIGKILL under load COUNT times in each mode, SEED=n to repeat one.
test-faults: prepare
	FAULT_ROUNDS=$(COUNT) FAULT_SEED=$(or $(SEED),0) $(PYTHON_IN) -m pytest -q --timeout 0 tests/faults \
	    tests/integration/test_mirror_target_faults.py

# A load larger than any process's memory, on two executors of 1 GB and a driver of 512 MB.
SIZE_MB ?= 5000
test-large-load: prepare
	LARGE_LOAD_MB=$(SIZE_MB) $(PYTHON_IN) -m pytest -q --timeout 0 tests/large

# A million events while everything is killed; the audit against the segment files. SEED=n to repeat one.
EVENTS ?= 1000000
test-audit: prepare
	AUDIT_EVENTS=$(EVENTS) AUDIT_SEED=$(or $(SEED),0) $(PYTHON_IN) -m pytest -q -s --timeout 0 \
	    tests/integration/test_audit_kills.py

test: prepare
	$(MAKE) test-unit
	$(MAKE) test-unit-pure
	$(MAKE) test-wheel
	$(MAKE) test-integration
	$(MAKE) test-browser
	$(MAKE) test-docker

demo: prepare
	$(PYTHON_IN) -m kafka2011 embedded demo $(if $(INPUT),--input "$(INPUT)")

# CHAOS=on lets the page kill, pause and cut; PORT chooses the page's port.
PORT ?= 8088
CHAOS ?= off
live: prepare
	$(PYTHON_IN) -m kafka2011 embedded up --port $(PORT) --set embedded.chaos=$(CHAOS)

# SECONDS of fuzzing for each target; SEED=n repeats a run.
SECONDS ?= 60
fuzz: prepare
	$(PYTHON_IN) -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

MINUTES ?= 10
soak: prepare
	$(PYTHON_IN) -m tests.fuzz.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# JSON=1 prints the results as JSON; var/benchmarks/history.jsonl keeps them in either case.
bench: prepare
	$(PYTHON_IN) -m benchmarks $(if $(JSON),--json)

bench-large: prepare
	$(PYTHON_IN) -m benchmarks --large --only "log sizes" $(if $(JSON),--json)

bench-peers: prepare
	$(PYTHON_IN) -m benchmarks.peers $(if $(JSON),--json)

# Tables and pictures in var/reports, of what the demo left in var/warehouse.
reports: prepare
	$(PYTHON_IN) -m kafka2011 reports

lock:
	uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras \
	    --generate-hashes --no-header -q -o requirements.lock

clean:
	rm -rf var build dist .pytest_cache .mypy_cache .ruff_cache

include deploy/docker/containers.mk
