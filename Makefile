# Each target works on a fresh machine with Python 3.11+, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Many tests wait for processes: twice as many workers as processors, but not too many.
PYTEST_WORKERS ?= $(shell getconf _NPROCESSORS_ONLN | awk '{n = 2 * $$1; if (n > 16) n = 16; print n}')

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint types imports tests format soak storm crowd mutants clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 install")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## make .venv with everything (harmless to repeat)
	@echo "ready: $(BIN)/hermes"

demo: $(STAMP) ## run real work through a board in a temporary home
	@$(BIN)/python -m examples.demo

test: $(STAMP) ## run every check: lint, types, import direction, tests
	@$(MAKE) --no-print-directory lint types imports tests

check: test

lint: $(STAMP) ## ruff: errors and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

imports: $(STAMP) ## the direction of imports
	@$(BIN)/lint-imports --no-cache

tests: $(STAMP) ## the tests alone
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m "not alone"
	@$(BIN)/python -m pytest -n 0 -m alone

format: $(STAMP) ## put the code into the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

soak: $(STAMP) ## race and kill processes on boards, and judge what happened: make soak MINUTES=60 [SEED=7]
	@$(BIN)/python -m tests.histories.soak --minutes $(or $(MINUTES),1) $(if $(SEED),--seed $(SEED))

storm: $(STAMP) ## kill workers, shims and gateways until every card is where it belongs: make storm MINUTES=10 [SEED=7]
	@$(BIN)/python -m tests.processes.soak --minutes $(or $(MINUTES),1) $(if $(SEED),--seed $(SEED))

crowd: $(STAMP) ## 32 processes write for a minute; then one does 100,000 operations: waits, handles, memory
	@$(BIN)/python -m tests.bounds.crowd --processes 32 --seconds 60
	@$(BIN)/python -m tests.bounds.steady --operations 100000

mutants: $(STAMP) ## break the product on purpose in many ways: every break must be found (an hour)
	@$(BIN)/python -m tests.mutants

clean: ## remove .venv and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache
