# The datacenters in containers (docs/containers.md). Works with Compose v2 and with docker-compose 1.29.

COMPOSE := tools/compose.sh
# docker-compose 1.29 takes down only what belongs to an active profile, so all are named.
ALL_PROFILES := jobs,tools,observability
PROJECT := $(or $(COMPOSE_PROJECT_NAME),$(shell sed -n 's/^COMPOSE_PROJECT_NAME=//p' .env))
SERVICE ?=
# `make down KEEP=1` keeps the volumes: logs, ZooKeeper's data, the warehouse.
KEEP ?=

.PHONY: preflight images up down status logs shell report demo-docker test-docker test-chaos lock-images

preflight:
	@tools/preflight.sh

images:
	@tools/preflight.sh --engine-only
	@tools/images.sh

up: preflight images
	@$(COMPOSE) up --detach --remove-orphans
	@tools/await-healthy.sh $(PROJECT)

down:
	@COMPOSE_PROFILES=$(ALL_PROFILES) $(COMPOSE) down --remove-orphans $(if $(KEEP),,--volumes)

status:
	@$(COMPOSE) ps
	@$(COMPOSE) exec -T audit kafka2011 status --zookeeper zookeeper-live:2181 --zookeeper zookeeper-offline:2181
	@$(COMPOSE) exec -T audit kafka2011 audit --url http://127.0.0.1:8080

logs:
	@$(COMPOSE) logs --tail 50 --follow $(SERVICE)

shell:
	@COMPOSE_PROFILES=tools $(COMPOSE) run --rm shell

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
