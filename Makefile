# Every target sets itself up in .venv; repeated calls cost nothing until pyproject.toml or constraints.txt changes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet -c constraints.txt
CHECKED := src tests benchmarks
# One thread a process and two processes: two threads beside a busy core are far slower than one.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.train ## train agents that lose their input and agents that keep it; ends with a report
	@$(BIN)/tether demo

.PHONY: test
test: lint ## every check: style, floors, types, tests with coverage
	@echo "tests"
	@marks=$$(bash scripts/system_packages.sh); $(PYTEST) --cov --cov-report=term -m "$$marks"

.PHONY: lint
lint: $(VENV)/.dev ## the quick checks: ruff, import-linter, mypy
	@echo "ruff check"; $(BIN)/ruff check --quiet $(CHECKED)
	@echo "ruff format"; $(BIN)/ruff format --quiet --check $(CHECKED)
	@echo "import-linter"; out=$$($(BIN)/lint-imports 2>&1) || { echo "$$out"; exit 1; }
	@echo "mypy"; $(BIN)/mypy --no-error-summary

.PHONY: slow
slow: $(VENV)/.dev ## the long tests (minutes each), without coverage
	@marks=$$(bash scripts/system_packages.sh); $(PYTEST) -m "$${marks/not slow/slow}" --durations=10

.PHONY: golden
golden: $(VENV)/.dev ## compare FILES="a.json b.json" of known right answers with what the package computes
	@test -n "$(FILES)" || { echo 'Name the files: make golden FILES="a.json b.json"'; exit 2; }
	@$(BIN)/python tests/golden.py $(FILES)

.PHONY: docs
docs: $(VENV)/.docs ## build the documentation into site/
	@out=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$out"; exit 1; }; echo "site/index.html"

.PHONY: clean
clean: ## remove caches and built files (not .venv, not runs/)
	@rm -rf site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* coverage.xml
	@find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

# ---- set-up ---------------------------------------------------------------------------------------------------------

$(VENV)/.python:
	@for python in python3.11 python3.12 python3.13 python3; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  $$python -m venv $(VENV) && touch $@ && exit 0; \
	  echo "$$python cannot make a virtual environment (on Debian: apt-get install python3-venv)."; exit 1; \
	done; \
	echo "Tether needs Python 3.11 or newer; neither python3.11 nor a new enough python3 was found."; exit 1

# torch alone and first, at its exact version: an open range resolves to a build of several gigabytes.
$(VENV)/.train: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (torch is about 0.75 GB; minutes the first time) ..."
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@$(PIP) -e '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	@echo "Installing the tools for the checks ..."
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing MkDocs ..."
	@$(PIP) -e '.[docs]'
	@touch $@
