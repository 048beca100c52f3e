# Only python3 (3.11 or newer) and make are needed: every target that needs .venv sets it up,
# and does so again when pyproject.toml, constraints.txt, the python or this folder's place changed.

PYTHON ?= python3
PYTEST_ARGS ?=
FUZZ_ARGS ?=
SIMULATION_ARGS ?=

# tests/conftest.py has the number; each takes whole files, so what a module shares is made once.
WORKERS := --numprocesses=auto --maxprocesses=8 --dist=loadfile --no-loadscope-reorder

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := src tests scripts benchmarks spec

# Some containers set it: then each worker, and each of the hundreds of processes that tests start,
# would compile MAIL and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

# The theme would print advice about its successor with every build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

# What the environment was built for; pip's scripts hold absolute paths, so the place counts too.
BUILT_FOR := $(shell $(PYTHON) -c 'import sys, sysconfig; \
	print(sys.version.split()[0], sysconfig.get_platform(), sys.base_prefix, end="")' 2>/dev/null) in $(CURDIR)

ifneq ($(BUILT_FOR),$(shell cat $(STAMP) 2>/dev/null))
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-federation serve test test-fast soak chaos lint format docs pictures models-table openapi fuzz bench abuse conformance lock clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## Watch a swarm answer a question over HTTP: offline, no key needed
	@$(BIN)/python scripts/demo.py

demo-federation: $(STAMP)  ## Watch three swarms on three servers solve one task: offline
	@$(BIN)/python scripts/multi_swarm_demo.py

serve: $(STAMP)  ## Run the server described by mail.toml and swarms.json
	@$(BIN)/mail server

test: $(STAMP)  ## Run the tests; pass options with PYTEST_ARGS="-k mailbox -x -n0"
	$(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

test-fast: $(STAMP)  ## Run the tests that need no process, browser or PostgreSQL: a minute
	$(BIN)/python -m pytest $(WORKERS) --fast $(PYTEST_ARGS)

soak: $(STAMP)  ## Test servers for an hour: without their database for a while, and killed again and again
	OUTAGE_SECONDS=30 $(BIN)/python -m pytest -s tests/e2e/test_outage.py $(PYTEST_ARGS)
	E2E_KILLS=300 E2E_CLIENTS=24 $(BIN)/python -m pytest -s -n0 tests/e2e/test_many_kills.py
	$(BIN)/python -m tests.e2e.desk_simulation $(SIMULATION_ARGS)

chaos: $(STAMP)  ## Kill and freeze servers hundreds of times, with SQLite and with PostgreSQL; takes about an hour and a half
	E2E_KILLS=300 E2E_CLIENTS=24 $(BIN)/python -m pytest -s -n0 tests/e2e/test_many_kills.py $(PYTEST_ARGS)
	CHAOS_FAULTS=300 CHAOS_CLIENTS=16 CHAOS_TASKS=2000 $(BIN)/python -m pytest -s -n0 tests/nodes/test_kills.py $(PYTEST_ARGS)

pictures: $(STAMP)  ## Draw the pictures of the console and the prompt for docs/, with Chromium
	@$(BIN)/python -m tests.server.pictures
	@$(BIN)/python -m tests.cli.picture

lint: $(STAMP)  ## Check style, types, layers, spec/, docs/ and known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python spec/validate_samples.py
	$(MKDOCS) build --strict --quiet
	@$(BIN)/python scripts/audit.py

format: $(STAMP)  ## Format the code and apply safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

models-table: $(STAMP)  ## Write the table of models in docs/models.md from its rows
	$(BIN)/python scripts/models_table.py

openapi: $(STAMP)  ## Write spec/openapi.yaml from the routes
	$(BIN)/python scripts/openapi.py

docs: $(STAMP)  ## Build the documentation website
	@$(MKDOCS) build --strict --quiet
	@echo "Open build/site/index.html; it needs no web server and no network."

fuzz: $(STAMP)  ## Fuzz a running server for a few minutes; FUZZ_ARGS="--seed 7" repeats a run
	@$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

bench: $(STAMP)  ## Measure messages per second, latency and memory
	@$(BIN)/python -m benchmarks

abuse: $(STAMP)  ## Attack a server within its limits for some minutes; fail if others notice
	@$(BIN)/python -m benchmarks abuse

conformance: $(STAMP)  ## Run the conformance suite of MCP against /mcp; needs npm
	@$(BIN)/python -m tests.conformance

lock:  ## Resolve the newest versions; write constraints.txt and requirements.lock
	@set -eu; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	echo "Installing the newest versions in a scratch environment; this takes a few minutes."; \
	$(PYTHON) -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		--report "$$scratch/report.json" -e '.[dev]'; \
	"$$scratch/venv/bin/python" scripts/lock.py "$$scratch/report.json"

clean:  ## Remove .venv, caches and build output
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis build dist
	find $(wildcard $(SOURCES)) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("MAIL needs Python 3.11 or newer, this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 <target>")'
	@if [ "$$(cat $@ 2>/dev/null)" != "$(BUILT_FOR)" ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); \
	fi
	@echo "Installing into $(VENV); the first time takes a minute or two."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@printf '%s' "$(BUILT_FOR)" > $@
