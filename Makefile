# Every target sets up what it needs on a fresh machine: .venv, the locked dependencies, Java.
SHELL := /bin/sh
VENV := .venv
PYTHON_IN := $(VENV)/bin/python
export VENV
# Where it is set, each of the processes below would compile every module that it loads.
unexport PYTHONDONTWRITEBYTECODE

# What `make demo` reads: empty for synthetic activity, a web access log, or - for standard input; and the log's format in
# the server's own notation. Both go through the environment as they stand: they may have dollars, quotes and spaces.
INPUT ?=
LOG_FORMAT ?=
INPUT_GIVEN := $(origin INPUT)
override INPUT := $(value INPUT)
override LOG_FORMAT := $(value LOG_FORMAT)
# By another name: to Compose LOG_FORMAT is the form of all processes' log lines, and also empty it would win over .env.
override INPUT_NOTATION := $(LOG_FORMAT)
export INPUT INPUT_NOTATION
ifneq ($(LOG_FORMAT),)
export LOG_FORMAT
endif
INPUT_OPTIONS = $(if $(INPUT),--input "$$INPUT") $(if $(LOG_FORMAT),--format "$$INPUT_NOTATION")

# Kills of `make test-faults` in each of its modes.
COUNT ?= 100

.PHONY: help prepare prepare-test check format lock clean demo live reports
.PHONY: test test-unit test-unit-pure test-wheel test-integration test-browser test-original
.PHONY: picture test-faults test-takeovers test-stops test-audit test-large-load soak-dashboard fuzz simulate soak
.PHONY: bench bench-large bench-peers experiments

define HELP
Run the deployment
  make demo [INPUT=access.log]  both datacenters, a load into the warehouse, the
                                audit; ends by itself. LOG_FORMAT='%h ...' or
                                '$$remote_addr ...' for a format of your own
  make live [CHAOS=on]          the same until Ctrl-C, or
                                kafka2011 embedded stop in another terminal;
                                both: the dashboard is at
                                http://127.0.0.1:8088 (PORT=n), data in var/
                                (DIR=other); FRESH=1 lets demo delete what live
                                has collected; REPLICAS=3 makes each live broker
                                a set, and the demo deletes the disk of a leader
                                in the middle; WAREHOUSE=s3://... keeps the
                                tables in a store
  make reports                  reports on the member activity in var/, or DIR

Run it in containers (docs/containers.md)
  make up, make down [KEEP=1]   start; stop and remove (KEEP=1 keeps the data);
                                up REPLICAS=3 makes live brokers sets of three,
                                STREAM=on counts related items by Spark
  make status, logs, shell      what runs; follow the logs [SERVICE=name];
                                a prompt beside it
  make report, make wan         a report job; faults between the datacenters
  make demo-docker              the demo in containers, nothing left behind
                                (REPLICAS=3: a leader loses its disk there, too)
  make preflight, make images   check that the machine can; build the images

Test it (docs/testing.md)
  make check                    format, lint, types, import arrows
  make test-unit                unit tests: no Java, no Docker
  make test                     every test: unit (both builds), wheel,
                                integration, browser, containers
  make test-unit-pure, test-wheel, test-integration, test-browser, test-docker
                                parts of make test
  make test-chaos               every container times every fault, hours
  make test-object-store        the same with the tables in an object store
  make test-faults COUNT=100    SIGKILL under load, again and again (SEED=n)
  make test-takeovers ROUNDS=100  a replica set under load through faults of
                                every kind (SEED=n, KINDS="a;b", TIMES=short)
  make test-stops ROUNDS=10     planned stops and starts: nothing is repeated
  make test-audit EVENTS=n      the audit's counts while processes are killed
  make test-large-load          5 GB through a small Spark driver (SIZE_MB=n;
                                STORE=1: into an object store that is killed),
                                and ORDERS=n of a schema that changes
  make test-original            beside Kafka 0.7.2 (ORIGINAL_CLASSPATH=...)
  make fuzz [SECONDS=60]        changed bytes against the codec and a broker
  make simulate [SECONDS=60]    a replica set's decisions through faults of
                                every kind (SEED=n)
  make soak [MINUTES=10]        load and restarts: memory and descriptors must
                                stay flat
  make soak-dashboard           a page left open: its memory must stay flat

Measure it (docs/performance.md)
  make bench [JSON=1]           produce, consume, fetch
  make bench-large              logs of up to 50 GB (needs 55 GB free)
  make bench-peers              beside Redis, NATS, RabbitMQ, ActiveMQ, Tansu,
                                where these are installed
  make experiments              the same with latency, drawn as the paper's
                                figures 4 and 5

Work on it
  make prepare                  .venv with what the deployment needs, compiled
                                loops, Java
  make prepare-test             the same with what tests and checks need
  make picture                  take the README's picture of the dashboard anew
  make format, lock, clean      format the code; resolve the dependencies anew;
                                remove what was built, and var/ with all data
endef
export HELP

help:
	@printf '%s\n' "$$HELP"

prepare:
	@deploy/tools/prepare.sh

# Besides what the deployment needs, what tests and checks need.
prepare-test:
	@deploy/tools/prepare.sh test

check: prepare-test
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(PYTHON_IN) -m pytest -q tests/unit/test_layout.py

format: prepare-test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

test-unit: prepare-test
	$(PYTHON_IN) -m pytest -q --no-skips -n 4 --dist worksteal tests/unit

# The same unit tests once more with the pure twins of the compiled loops.
test-unit-pure: prepare-test
	KAFKA2011_PURE=1 $(PYTHON_IN) -m pytest -q --no-skips -n 4 --dist worksteal tests/unit/protocol tests/unit/events tests/unit/broker tests/unit/producer \
	    --ignore=tests/unit/broker/replication

# The source archive, the wheel built from it and an editable install, each in an environment of its own.
test-wheel: prepare-test
	$(PYTHON_IN) -m pytest -q tests/packaging

test-integration: prepare-test
	$(PYTHON_IN) -m pytest -q --no-skips -n 4 tests/integration tests/faults

# Beside Kafka 0.7.2 itself; its classes are not part of the project (docs/testing.md).
ORIGINAL_CLASSPATH ?=
test-original: prepare-test
	@test -n "$(ORIGINAL_CLASSPATH)" || \
	    { echo "set ORIGINAL_CLASSPATH to Kafka 0.7.2's classes (docs/testing.md)"; exit 2; }
	ORIGINAL_CLASSPATH="$(ORIGINAL_CLASSPATH)" $(PYTHON_IN) -m pytest -q --timeout 600 tests/original

# The dashboard in Debian's Chromium over a real deployment; skipped with a reason where there is none.
test-browser: prepare-test
	@deploy/tools/browser.sh
	$(PYTHON_IN) -m pytest -q --no-skips tests/browser

# docs/dashboard.png, which the README shows and a test of test-browser compares with the page.
picture: prepare-test
	@deploy/tools/browser.sh
	PICTURE=1 $(PYTHON_IN) -m pytest -q --no-skips tests/browser/test_picture.py

# Pages open on their streams for SOAK_S seconds: neither they nor the server may grow.
SOAK_S ?= 3600
soak-dashboard: prepare-test
	@deploy/tools/browser.sh
	SOAK_S=$(SOAK_S) $(PYTHON_IN) -m pytest -q -s --timeout 0 tests/browser/test_soak.py -k stream

# A long campaign: SIGKILL under load COUNT times in each mode, SEED=n to repeat one.
test-faults: prepare-test
	FAULT_ROUNDS=$(COUNT) FAULT_SEED=$(or $(SEED),0) $(PYTHON_IN) -m pytest -q --timeout 0 tests/faults \
	    tests/integration/test_mirror_target_faults.py

# A replica set goes through ROUNDS faults, all kinds in turn; KINDS="a;b" names some of tests/faults/takeovers.py.
# With TIMES=short there are more an hour, with MIN=1 one member confirms alone. SEED=n to repeat one.
test-takeovers: prepare-test
	FAULT_ROUNDS=$(ROUNDS) FAULT_SEED=$(or $(SEED),0) FAULT_KINDS="$(KINDS)" FAULT_TIMES="$(TIMES)" FAULT_MIN_INSYNC=$(or $(MIN),2) \
	    $(PYTHON_IN) -m pytest -q -s --timeout 0 tests/faults/test_replica_takeovers.py

# A live deployment is stopped and started ROUNDS times in a row; the books must be exact after each.
ROUNDS ?= 10
test-stops: prepare-test
	STOP_ROUNDS=$(ROUNDS) $(PYTHON_IN) -m pytest -q --timeout 0 tests/integration/test_demo.py -k planned_stops

# A load larger than any process's memory, on two executors of 1 GB and a driver of 512 MB.
# A million orders of a nested schema that changes, poison among them, while the load is killed. 0: without.
SIZE_MB ?= 5000
ORDERS ?= 1000000
test-large-load: prepare-test
	$(if $(STORE),deploy/tools/images.sh object-store)
	LARGE_LOAD_MB=$(SIZE_MB) LARGE_LOAD_STORE=$(STORE) LARGE_ORDERS=$(ORDERS) $(PYTHON_IN) -m pytest -q -s --timeout 0 tests/large

# A million events while everything is killed; the audit against the segment files. SEED=n to repeat one.
EVENTS ?= 1000000
test-audit: prepare-test
	AUDIT_EVENTS=$(EVENTS) AUDIT_SEED=$(or $(SEED),0) $(PYTHON_IN) -m pytest -q -s --timeout 0 \
	    tests/integration/test_audit_kills.py

# The images of the container tests are built beside the others: building mostly waits for downloads. What goes wrong
# there is said by test-docker, which builds what is missing. The wheel's tests, which use one core, run beside the
# integration tests. Nothing with containers runs beside the browser's: Chromium ends its requests whenever a container's
# network comes or goes. A part that fails does not hide the others; the last line names those that failed.
test: prepare-test
	@(deploy/tools/preflight.sh && exec deploy/tools/images.sh) >/dev/null 2>&1 & images=$$!; \
	trap 'kill "$$images" 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
	failed=; part() { echo "+ $$*"; "$$@" || failed="$$failed, $$*"; }; \
	part make test-unit; \
	part make test-unit-pure; \
	part $(PYTHON_IN) -m pytest -q --no-skips -n 4 tests/packaging tests/integration tests/faults; \
	wait "$$images"; \
	part make test-browser; \
	part make test-docker; \
	[ -z "$$failed" ] || { echo "failed: $${failed#, }" >&2; exit 1; }

# `exec`: Ctrl-C ends the command cleanly, and make, whose child it then is, has nothing to say of an interrupted shell.
# DIR is where data, logs and state are. The demo empties it; FRESH=1 also of what `make live` collected.
# REPLICAS=3 makes each live broker a set of three; the demo then kills a leader and deletes its disk.
DIR ?= var
FRESH ?=
REPLICAS ?=
REPLICAS_OPTION = $(if $(REPLICAS),--replicas $(REPLICAS))
# WAREHOUSE=s3://bucket/prefix puts the tables of demo and live there (docs/warehouse.md).
WAREHOUSE ?=
WAREHOUSE_OPTION = $(if $(WAREHOUSE),--warehouse "$(WAREHOUSE)")
# PORT is the dashboard's port.
PORT ?= 8088
demo: prepare
	$(if $(INPUT),,$(if $(filter command,$(INPUT_GIVEN)),$(error INPUT= is empty: name an access log, or leave INPUT out for synthetic activity)))
	@exec $(PYTHON_IN) -m kafka2011 embedded demo --dir "$(DIR)" --port $(PORT) $(REPLICAS_OPTION) $(WAREHOUSE_OPTION) $(INPUT_OPTIONS) $(if $(FRESH),--fresh)

# CHAOS=on lets the dashboard kill, pause and cut.
CHAOS ?= off
# on: Spark counts items viewed together over the live brokers (docs/site.md); in containers, too: make up STREAM=on.
STREAM ?= off
live: prepare
	@exec $(PYTHON_IN) -m kafka2011 embedded up --dir "$(DIR)" --port $(PORT) --set embedded.chaos=$(CHAOS) --set embedded.stream=$(STREAM) $(REPLICAS_OPTION) $(WAREHOUSE_OPTION)

# SECONDS of fuzzing for each target; SEED=n repeats a run.
SECONDS ?= 60
fuzz: prepare-test
	$(PYTHON_IN) -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Random walks of the replicas' machine on every core; SEED=n repeats them.
simulate: prepare-test
	$(PYTHON_IN) -m tests.simulation --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

MINUTES ?= 10
soak: prepare-test
	$(PYTHON_IN) -m tests.fuzz.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# JSON=1 prints the results as JSON; var/benchmarks/history.jsonl keeps them in either case.
bench: prepare-test
	$(PYTHON_IN) -m benchmarks $(if $(JSON),--json)

bench-large: prepare-test
	$(PYTHON_IN) -m benchmarks --large --only "log sizes" $(if $(JSON),--json)

bench-peers: prepare-test
	$(PYTHON_IN) -m benchmarks.peers --what throughput $(if $(JSON),--json)

# The paper's figures 4 and 5, and latency against rate, into FIGURES.
FIGURES ?= var/benchmarks/figures
experiments: prepare-test
	$(PYTHON_IN) -m benchmarks.peers --figures $(FIGURES)

# Tables and pictures in DIR/reports, from what the demo left in DIR/warehouse (WAREHOUSE=s3://...: there).
reports: prepare
	@exec $(PYTHON_IN) -m kafka2011 reports --warehouse "$(or $(WAREHOUSE),$(DIR)/warehouse)" --set report.dir="$(DIR)/reports"

lock:
	uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras \
	    --generate-hashes --no-header -q -o requirements.lock

clean:
	rm -rf var build dist .pytest_cache .mypy_cache .ruff_cache

include deploy/docker/containers.mk

# A variable that nothing here reads is a slip in its name, which make itself would pass over.
READ_BY := $(MAKEFILE_LIST) docker-compose.yml .env $(wildcard deploy/tools/*)
ENVIRONMENT := KAFKA2011_% PYTEST_% PIP_% COMPOSE_% DOCKER_%
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
ifneq ($(filter-out $(ENVIRONMENT),$(GIVEN)),)
SLIPS := $(filter-out $(ENVIRONMENT) $(shell grep -ohE '[A-Z][A-Z_0-9]*' $(READ_BY)),$(GIVEN))
$(if $(SLIPS),$(error $(SLIPS)=: no such variable (make help names them; for the environment of what is started, write it before make)))
endif
