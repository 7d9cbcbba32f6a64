# The datacenters in containers (docs/containers.md). Works with Compose v2 and with docker-compose 1.29.

# `make up CHAOS=on` lets the dashboard break links and containers (the risks: deploy/docker/chaos.yml);
# `make up REPLICAS=3` makes each live broker three replicas (deploy/docker/replicated.yml).
ifneq (,$(and $(filter up,$(MAKECMDGOALS)),$(filter-out 1 3,$(REPLICAS))))
$(error REPLICAS=$(REPLICAS): in containers a live broker is one process, or with REPLICAS=3 a set of three)
endif
OVERRIDES := $(if $(filter on,$(CHAOS)),-f deploy/docker/chaos.yml) $(if $(filter 3,$(REPLICAS)),-f deploy/docker/replicated.yml)
COMPOSE_OPTIONS := $(if $(strip $(OVERRIDES)),-f docker-compose.yml $(OVERRIDES))
# `make up HA=1` starts three ZooKeeper servers in each datacenter. Its settings go into the environment, which both
# generations of Compose prefer to .env; the other settings of .env stay in force.
HA ?=
HA_SETTINGS := $(if $(HA),env $$(sed -n '/^COMPOSE_/d; /^[A-Z]/p' deploy/docker/ha.env))
# `make up STORE=1` keeps the tables in an object store (deploy/docker/object-store.env).
STORE ?=
STORE_SETTINGS := $(if $(STORE),deploy/tools/with_store.sh)
COMPOSE := $(HA_SETTINGS) $(STORE_SETTINGS) deploy/tools/compose.sh $(COMPOSE_OPTIONS)
# The dashboard's process joins the group of the engine's socket, nothing more.
ifeq ($(CHAOS),on)
ENGINE_SOCKET ?= /var/run/docker.sock
export ENGINE_SOCKET
export ENGINE_SOCKET_GROUP ?= $(shell stat -L -c %g '$(ENGINE_SOCKET)' 2>/dev/null)
endif
# docker-compose 1.29 takes down only what belongs to an active profile, so all are named.
ALL_PROFILES := jobs,tools,observability,ha,load,chaos,two-live,spark,stream,object-store
# Exported, so that Make and Compose never mean two projects.
PROJECT := $(or $(COMPOSE_PROJECT_NAME),$(shell deploy/tools/setting.sh COMPOSE_PROJECT_NAME kafka2011))
export COMPOSE_PROJECT_NAME := $(PROJECT)
SERVICE ?=
comma := ,
ADDED_PROFILES := $(if $(HA),ha)$(if $(filter on,$(STREAM)),$(if $(HA),$(comma))stream)
ifneq ($(ADDED_PROFILES),)
PROFILES := $(or $(COMPOSE_PROFILES),$(shell deploy/tools/setting.sh COMPOSE_PROFILES))
export COMPOSE_PROFILES := $(if $(PROFILES),$(PROFILES)$(comma))$(ADDED_PROFILES)
endif
# `make down KEEP=1` keeps the volumes: logs, ZooKeeper's data, the warehouse.
KEEP ?=

.PHONY: preflight images up down status logs shell wan report demo-docker test-docker test-chaos test-object-store

preflight:
	@deploy/tools/preflight.sh $(if $(filter on,$(CHAOS)),--chaos)

images:
	@deploy/tools/preflight.sh --engine-only
	@$(STORE_SETTINGS) deploy/tools/images.sh

up: preflight images
	@$(HA_SETTINGS) $(STORE_SETTINGS) deploy/tools/up.sh $(PROJECT) $(COMPOSE_OPTIONS)
	@echo "dashboard: http://127.0.0.1:$$(deploy/tools/setting.sh DASHBOARD_PORT 8088)  (make status, make shell, make down)" >&2

down:
	@said=$$(COMPOSE_PROFILES=$(ALL_PROFILES) deploy/tools/compose.sh -f docker-compose.yml -f deploy/docker/replicated.yml down --remove-orphans $(if $(KEEP),,--volumes) 2>&1) || { printf '%s\n' "$$said" >&2; exit 1; }
	@echo "removed: containers, networks$(if $(KEEP),; the volumes are kept,$(comma) volumes)" >&2

# Exits with the audit's status. Profile `two-live`: the second datacenter has an audit of its own.
IN := $(COMPOSE) exec -T -e COLUMNS=120
status:
	@[ -n "$$(docker ps --quiet --filter label=com.docker.compose.project=$(PROJECT))" ] \
	    || { echo "kafka2011: nothing of the project $(PROJECT) runs: make up starts it" >&2; exit 3; }
	@$(COMPOSE) ps
	@status=0; \
	$(IN) audit kafka2011 status --zookeeper zookeeper-live:2181 --zookeeper zookeeper-offline:2181 || status=$$?; \
	$(IN) audit kafka2011 audit --url http://127.0.0.1:8080 || status=$$?; \
	if [ -n "$$(docker ps --quiet --filter label=com.docker.compose.project=$(PROJECT) --filter label=com.docker.compose.service=west-audit)" ]; then \
	    $(IN) west-audit kafka2011 status --zookeeper west-zookeeper:2181 || status=$$?; \
	    $(IN) west-audit kafka2011 audit --url http://127.0.0.1:8080 || status=$$?; \
	fi; \
	exit $$status

logs:
	@$(COMPOSE) logs --tail 50 --follow $(SERVICE)

shell:
	@COMPOSE_PROFILES=tools $(COMPOSE) run --rm shell

# The link between the datacenters: make wan FAULTS='{"delay_ms": 100}' | '{"cut": true}' | '{"clear": true}'
FAULTS ?= {}
wan:
	@$(COMPOSE) exec -T wan-link python3 -I - '{"faults": $(FAULTS)}' < deploy/docker/faults.py

report:
	@COMPOSE_PROFILES=jobs $(COMPOSE) run --rm -T report

# `make demo` in containers: the same summary, the same exit status.
# Beside `make up`, as a project of its own. LOG_FORMAT is the input's here, as of `make demo`.
demo-docker: prepare
	@COMPOSE_PROJECT_NAME=kafka2011-demo deploy/tools/preflight.sh --demo
	@deploy/tools/images.sh
	@unset LOG_FORMAT; $(PYTHON_IN) -m kafka2011 containers demo $(INPUT_OPTIONS) $(REPLICAS_OPTION)

# Builds the images when needed; where no engine answers it prints the reason and does nothing.
test-docker: prepare-test
	@deploy/tools/test-containers.sh $(PYTHON_IN) -q --no-skips --durations 0 --durations-min 5 -m "docker and not chaos" tests/docker

# Every service of the deployment, times every fault.
test-chaos: prepare-test
	@deploy/tools/test-containers.sh $(PYTHON_IN) -q --no-skips --durations 0 --durations-min 5 -m docker tests/docker

# The warehouse in the object store of profile `object-store`, which is killed, beside killed and racing loaders.
test-object-store: prepare-test
	@COMPOSE_PROFILES=object-store deploy/tools/test-containers.sh $(PYTHON_IN) -q --no-skips --durations 0 --durations-min 5 -m docker tests/docker/test_object_store.py
