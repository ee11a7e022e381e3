# Every command of the project. `make help` lists them; `make demo` on a fresh clone needs python3 (3.11+), make and git.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
UV := .uv/bin/uv
BIN := .venv/bin
CODE := services shared infra tests

# What `make test` runs (a folder, a file, `file::test`), what `make up` is told, and more for pytest.
T ?= tests
ARGS ?=
PYTEST ?=

# How many random histories `make test-long` runs, or the seeds of those that it is to run again.
HISTORIES ?= 300
SEEDS ?=

# The whole of the tests by workers with servers and a stack of their own, in the order of the folders: what takes longest
# comes early, and files of one long test do not come last. A part of them in this process.
WORKERS := $(if $(filter tests,$(T)),--numprocesses=auto --dist=loadfile --no-loadscope-reorder)

# uv never downloads an interpreter: it takes the one that PYTHON names. Its cache is the user's own, or, for a user whose
# home is not there or cannot be written, a folder of the clone.
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
ifneq ($(shell test -n "$$HOME" && test -w "$$HOME" && echo yes),yes)
export UV_CACHE_DIR := $(CURDIR)/.uv/cache
endif

.PHONY: help setup demo up down check test test-long bench bench-peers bench-slurm clean

help: ## List these commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.all ## Bring uv and every package into this folder (.uv, .venv)

demo: .venv/.all ## Train a classifier as a real job, from submit to its copied-back outputs
	$(BIN)/python -m infra.demo $(ARGS)

up: .venv/.base ## Start the embedded stack in the background (ARGS="--http-port 8420 --home DIR")
	$(BIN)/tidegate up --detach $(ARGS)

down: .venv/.base ## Stop the embedded stack; running jobs go on (ARGS="--home DIR")
	$(BIN)/tidegate down $(ARGS)

check: .venv/.all ## Format, lint, types and import contracts: what CI runs before the tests
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy --strict $(CODE)
	$(BIN)/lint-imports --no-logo

test: .venv/.all ## Run the tests, or a part: make test T=tests/unit/gatekeeper
	$(BIN)/pytest --session-timeout=830 $(WORKERS) $(T) $(PYTEST)

test-long: .venv/.all ## Kill and freeze at every failpoint, then at random (HISTORIES=300; SEEDS=1,2 replays)
	TIDEGATE_CHAOS_SEEDS="$(SEEDS)" TIDEGATE_CHAOS_HISTORIES="$(HISTORIES)" $(BIN)/pytest -m long -s $(T) $(PYTEST)

bench: .venv/.base ## Measure throughput, latency and cost per job on this machine
	$(BIN)/python -m tests.bench.throughput $(ARGS)

bench-peers: .venv/.bench ## Run the same jobs in tidegate, pgqueuer and Procrastinate by turns, and print ratios
	$(BIN)/python -m tests.bench.peers $(ARGS)

bench-slurm: .venv/.all ## Run the same jobs by sbatch and through tidegate on a test cluster of Slurm (root), and count its calls
	$(BIN)/python -m tests.bench.slurm $(ARGS)

clean: ## Remove what setup and the checks made (not the cache of uv)
	rm -rf .venv .uv/bin .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(UV):
	@$(PYTHON) infra/bootstrap_uv.py $(UV)

# --inexact: the packages of the demo stay where they are when only the base is asked for.
.venv/.base: pyproject.toml uv.lock | $(UV)
	@echo "bringing the packages of uv.lock into .venv"
	@$(UV) sync --quiet --frozen --inexact --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

.venv/.all: pyproject.toml uv.lock | $(UV)
	@echo "bringing the packages of uv.lock into .venv"
	@$(UV) sync --quiet --frozen --all-groups --no-group bench --python \
		"$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@rm -f .venv/.bench
	@touch $@ .venv/.base

# The other queues that the benchmark measures beside: nobody else needs them.
.venv/.bench: pyproject.toml uv.lock | $(UV)
	@echo "bringing the packages of uv.lock, and the queues to compare with, into .venv"
	@$(UV) sync --quiet --frozen --inexact --group bench --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@ .venv/.base
