# Every target builds or refreshes .venv by itself: change requirements.lock or pyproject.toml and run anything.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# The tests start a thousand Python programs: each would compile all of them again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
PG ?= 18
ARGS ?=
BIN := .venv/bin
VENV := .venv/.complete
# Tests wait a third of their time, so four of them keep two cores busy. Each has a server, so eight are enough.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$(( n > 8 ? n : n > 4 ? 8 : 2 * n )))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS)
SQL_TESTS = tests/sql tests/migrations tests/plans tests/concurrency/test_model.py
COMPILE = $(BIN)/uv pip compile --generate-hashes --no-emit-index-url --universal --python-version 3.11 --quiet \
  --custom-compile-command 'make lock'
SOURCES = $(wildcard src tests benchmarks examples)

.PHONY: help up test test-full programs suite-18 suite-16 suite-15 suite-all torture soak planted torture-web check types lint format bench bench-outbox bench-isolation bench-shards bench-start bench-workflows bench-pages bench-peers docs screenshots dist ten-minutes manifests lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Holdfast needs Python 3.11 or later. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

up: $(VENV) ## start PostgreSQL, a worker, a dispatcher, the dashboard and an example application; Ctrl-C stops them; ARGS="--port 8080"
	@$(BIN)/holdfast up $(ARGS)

test: SELECTED = -m 'not full'
test: suite-$(PG) ## run the first look, a few minutes, nothing to install; ARGS="-k claim" goes to pytest, PG as below

test-full: programs suite-$(PG) ## run all tests, also with brokers and a browser; PG=18 (default), 16, 15 or all

# With AGAIN=1, as in CI, a few tests that failed beside others run once more, alone: a machine that is busy makes some
# fail. Both lists are printed, so a test that passes only alone can be seen and mended.
suite = HOLDFAST_TEST_PG=$(1) $(PYTEST) $(SELECTED) $(ARGS) \
  $(if $(AGAIN),|| { test $$? = 1 && HOLDFAST_TEST_PG=$(1) $(BIN)/python tools/again.py; })

suite-18 suite-16: suite-%: $(VENV)
	$(call suite,$*)

# Without PostgreSQL 15 its run counts as skipped, except where CI says that nothing may be skipped.
suite-15: $(VENV)
	@if tools/ensure-postgres-15; then $(call suite,15); \
	elif [ "$${CI:-}" = true ]; then exit 1; fi

# Only the SQL can differ between servers, so the older ones run only what tests it; large tables, all orders of two
# sessions and most random histories are for one version, and before 17 the queue of notifications cannot be filled.
suite-all: suite-18
	HOLDFAST_MODEL_EXAMPLES=25 $(MAKE) suite-16 suite-15 SELECTED="$(SELECTED)" AGAIN=$(AGAIN) ARGS="$(SQL_TESTS) -k 'not 100000 and not million and not notification_queue' $(ARGS)"

# Tests that need one of these are skipped where it cannot be had, except where CI says that nothing may be.
programs:
	@for program in promtool pgbouncer nginx faketime nats-server rabbitmq chromium axe plproxy patroni podman helm kubectl linters; do tools/ensure-$$program || [ "$${CI:-}" != true ]; done

torture: $(VENV) ## plant bugs, then kill workers, servers and connections for 20 minutes, and check that nothing is lost; QUICK=1 for 3
	$(if $(ARGS),,$(MAKE) planted ARGS=)
	@status=0; PYTHONPATH=tests $(BIN)/python -m acceptance $(if $(QUICK),--quick) $(ARGS) || status=$$?; \
	  $(BIN)/python tools/figures.py; exit $$status

HOURS ?= 1
soak: $(VENV) ## run everything at once for HOURS=n and report what grows; ARGS="--json FILE", ARGS=--page writes docs/reliability.md
	PYTHONPATH=tests $(BIN)/python -m soak --hours $(HOURS) $(ARGS)

planted: $(VENV) ## plant bugs in a copy, one at a time, and see that the tests notice; QUICK=1 for a handful
	PYTHONPATH=tests $(BIN)/python -m planted $(if $(QUICK),--quick) $(ARGS)
	$(if $(QUICK),,PYTHONPATH=tests $(BIN)/python -m acceptance --page && $(BIN)/python tools/figures.py)

torture-web: $(VENV) programs ## every page, act and promise of the HTTP side at length: 2,000 waits, 100 hostile texts in Chromium
	HOLDFAST_ACCEPTANCE=full $(BIN)/python -m pytest tests/http tests/browser -s $(ARGS)

check: types lint docs ## format, lint, types, import rules, and the site of the pages: what CI checks

types: $(VENV)
	$(BIN)/mypy $(SOURCES)

lint: $(VENV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

format: $(VENV) ## format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV) ## measure the engine against its floor
	$(BIN)/python -m benchmarks.engine $(ARGS)

bench-isolation: $(VENV) ## measure what a process of its own costs a task
	$(BIN)/python -m benchmarks.isolation $(ARGS)

bench-outbox: $(VENV) ## measure how many events a second one dispatcher sends
	$(BIN)/python -m benchmarks.outbox $(ARGS)

bench-shards: $(VENV) ## measure how throughput grows with 1, 2 and 4 shards; needs root, and says so without it
	$(BIN)/python -m benchmarks.shards $(ARGS)

bench-start: $(VENV) ## measure how long an import, a command and the start of a worker take
	$(BIN)/python -m benchmarks.start $(ARGS)

bench-workflows: $(VENV) ## measure durable steps beside DBOS and absurd; ARGS=--write
	$(BIN)/python -m benchmarks.workflows $(ARGS)

bench-pages: $(VENV) ## measure every page and GET route with a million tasks; ARGS=--write
	$(BIN)/python -m benchmarks.pages $(ARGS)

bench-peers: $(VENV) ## measure Holdfast and its peers; ARGS="--peers all --json FILE" for more
	@status=0; $(BIN)/python -m benchmarks.peers $(ARGS) || status=$$?; \
	  $(BIN)/python tools/figures.py; exit $$status  # a missed target is a figure, too

screenshots: $(VENV) ## draw the pictures of the documentation again: docs/images, with Chromium
	@tools/ensure-chromium
	PYTHONPATH=tests $(BIN)/python tools/screenshots.py $(ARGS)

docs: $(VENV) ## build the documentation into site/, and fail on every warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

dist: $(VENV) ## build the release into dist/ twice, compare, and try it in empty environments
	$(BIN)/python tools/dist.py
	HOLDFAST_RELEASE=true $(BIN)/python -m pytest tests/release tests/docs/test_walkthroughs.py tests/browser/test_ten_minutes.py -x -s $(ARGS)

ten-minutes: $(VENV) ## follow the first tutorial in an empty environment, look at the dashboard, and print how long it took
	@tools/ensure-chromium
	HOLDFAST_RELEASE=true $(BIN)/python -m pytest tests/browser/test_ten_minutes.py -n0 -k nothing $(ARGS)

manifests: ## write deploy/kubernetes from the Helm chart in deploy/helm
	@tools/ensure-helm
	build/helm/helm template shop deploy/helm > deploy/kubernetes/shop.yaml
	build/helm/helm template shop deploy/helm --set worker.autoscaling.enabled=true \
	  --show-only templates/autoscaling.yaml > deploy/kubernetes/keda/scaled-object.yaml

lock: $(VENV) ## resolve the dependencies again: requirements.lock, and of the image deploy/requirements.txt
	$(COMPILE) pyproject.toml --all-extras --upgrade --output-file requirements.lock
	echo hatchling | $(COMPILE) pyproject.toml - --constraints requirements.lock --extra amqp --extra binary \
	  --extra comms --extra events --extra fast --extra metrics --extra nats --extra otel --extra web --output-file deploy/requirements.txt

clean: ## remove what can be built again; your data in .holdfast stays
	rm -rf .venv .bench dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
