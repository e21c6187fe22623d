# Latchboard: every verb of the checkout. `make help` lists them.
# A fresh machine needs Python 3.11+, a Rust toolchain and make; everything else is set up here.

SHELL := /bin/bash
PYTHON ?= python3
TEST_JOBS ?= 4
VENV := .venv
BIN := $(VENV)/bin
EXTENSION := src/adapters/engine/_native.abi3.so
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name Cargo.toml)

.DEFAULT_GOAL := help
.PHONY: help setup run demo test lint types laws rust bench clean apt

help: ## list the verbs
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(VENV)/.installed $(VENV)/.built ## set everything up, start nothing

run: setup ## start the service with embedded database and broker
	@$(BIN)/latchboard serve

demo: setup ## the same with ten simulated devices
	@$(BIN)/latchboard demo

test: setup apt ## run all tests, in four processes (TEST_JOBS=1: in one)
	@$(BIN)/python -m compileall -q src tests # services are started hundreds of times
	$(BIN)/python -m pytest -p no:cacheprovider -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --benchmark-disable --durations=10

lint: setup ## formatting, lint, types and laws
	@bash .ci/lint

bench: setup ## run the benchmarks (medians and ratios; nothing is asserted)
	@for peer in psutil numpy zen-engine ply rule-engine common-expression-language datalogic-py; do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $$peer || echo "==> $$peer does not install here; left out"; done
	$(BIN)/python -m pytest benches -o python_files='bench_*.py' -o python_functions='bench_*' --benchmark-only --benchmark-sort=mean

clean: ## remove what was built (not the data)
	rm -rf $(VENV) target $(EXTENSION)

$(VENV)/bin/python:
	@echo "==> Python environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.lock | $(VENV)/bin/python
	@echo "==> Python packages (pinned, with hashes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.built: $(RUST_SOURCES) pyproject.toml $(VENV)/.installed
	@command -v cargo >/dev/null || { echo "A Rust toolchain is needed: https://rustup.rs"; exit 1; }
	@echo "==> Rust extension (release build; the first one takes some minutes)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

apt: # what real-component tests need, where it may be installed
	@bash .ci/apt
