# Each target works on a fresh machine with Python 3.11+, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint types imports tests format soak clean

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
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS)

format: $(STAMP) ## put the code into the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

soak: $(STAMP) ## kill processes at random, callers and workers, so long each: make soak MINUTES=10
	@$(BIN)/python -m tests.histories.soak --minutes $(or $(MINUTES),1)
	@$(BIN)/python -m tests.processes.soak --minutes $(or $(MINUTES),1)

clean: ## remove .venv and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache
