# The datacenters in containers (docs/containers.md). Works with Compose v2 and with docker-compose 1.29.

COMPOSE := tools/compose.sh $(if $(HA),--env-file docker/ha.env)
# docker-compose 1.29 takes down only what belongs to an active profile, so all are named.
ALL_PROFILES := jobs,tools,observability,ha,load,chaos
PROJECT := $(or $(COMPOSE_PROJECT_NAME),$(shell sed -n 's/^COMPOSE_PROJECT_NAME=//p' .env))
SERVICE ?=
# `make up HA=1` starts three ZooKeeper servers in each datacenter.
HA ?=
# `make down KEEP=1` keeps the volumes: logs, ZooKeeper's data, the warehouse.
KEEP ?=

.PHONY: preflight images up down status logs shell wan report demo-docker test-docker test-chaos lock-images

preflight:
	@tools/preflight.sh

images:
	@tools/preflight.sh --engine-only
	@tools/images.sh

# The frontends last: what they send while nothing listens yet would be sent twice, and counted so.
up: preflight images
	@$(COMPOSE) up --detach --remove-orphans --scale frontend-1=0 --scale frontend-2=0
	@tools/await-healthy.sh $(PROJECT)
	@$(COMPOSE) up --detach --no-recreate
	@tools/await-healthy.sh $(PROJECT)
	@echo "dashboard: http://127.0.0.1:$(or $(DASHBOARD_PORT),8088)  (make status, make shell, make down)" >&2

down:
	@COMPOSE_PROFILES=$(ALL_PROFILES) $(COMPOSE) down --remove-orphans $(if $(KEEP),,--volumes)

status:
	@$(COMPOSE) ps
	@$(COMPOSE) exec -T -e COLUMNS=120 audit kafka2011 status --zookeeper zookeeper-live:2181 --zookeeper zookeeper-offline:2181
	@$(COMPOSE) exec -T -e COLUMNS=120 audit kafka2011 audit --url http://127.0.0.1:8080

logs:
	@$(COMPOSE) logs --tail 50 --follow $(SERVICE)

shell:
	@COMPOSE_PROFILES=tools $(COMPOSE) run --rm shell

# The link between the datacenters: make wan FAULTS='{"delay_ms": 100}' | '{"cut": true}' | '{"clear": true}'
FAULTS ?= {}
POST := import sys, urllib.request as r; print(r.urlopen(r.Request("http://127.0.0.1:8080/faults", sys.argv[1].encode(), {"Content-Type": "application/json"})).read().decode())
wan:
	@$(COMPOSE) exec -T wan-link python3 -c '$(POST)' '{"faults": $(FAULTS)}'

report:
	@COMPOSE_PROFILES=jobs $(COMPOSE) run --rm -T report

# The story of `make demo` on containers: the same summary, the same exit rule.
demo-docker: prepare preflight images
	@$(PYTHON_IN) -m cli containers demo $(if $(INPUT),--input "$(INPUT)")

test-docker: prepare
	$(PYTHON_IN) -m pytest -q --no-skips -m "docker and not chaos" tests/docker

# Every service of the deployment, times every fault.
test-chaos: prepare
	$(PYTHON_IN) -m pytest -q --no-skips -m docker tests/docker

# The dependencies of the images: the versions of requirements.lock, without tests, with and without Spark.
lock-images:
	uv pip compile pyproject.toml --universal --python-version 3.11 -c requirements.lock --extra dashboard \
	    --generate-hashes --no-header --no-annotate -q -o requirements-app.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 -c requirements.lock --extra dashboard --extra spark \
	    --generate-hashes --no-header --no-annotate -q -o requirements-runtime.lock
