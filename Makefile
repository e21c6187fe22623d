# The tasks of this checkout; `make help` lists them.
# A new machine needs Python 3.11 or newer, a Rust toolchain and make. The targets install everything else into .venv.

SHELL := /bin/bash
PYTHON ?= python3
TEST_JOBS ?= 6
TEST_ORDER ?= random
VENV := .venv
BIN := $(VENV)/bin
EXTENSION := src/adapters/engine/_native.abi3.so
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name Cargo.toml)

unexport PYTHONDONTWRITEBYTECODE # without bytecode each process compiles all tests anew
.DEFAULT_GOAL := help
.PHONY: help check setup dev run demo test faults simulate pictures examples clients lint bench wheel sbom release lock clean apt

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

check: # everything that the setup needs, before it installs anything
	@PYTHON="$(PYTHON)" bash .ci/check

setup: check $(VENV)/.installed $(VENV)/.built ## install and build what the service needs; start nothing

dev: setup $(VENV)/.dev ## install the tools for tests and lint as well

run: setup ## start the service with its embedded database and broker
	@$(BIN)/latchboard serve

demo: setup ## start the service with ten simulated devices
	@$(BIN)/latchboard demo

test: dev apt ## run all tests in random order in six processes (TEST_JOBS=1: in one; TEST_ORDER=SEED: in that order)
	@$(BIN)/python -m compileall -q src tests # the tests start the service hundreds of times
	$(BIN)/python -m pytest -p no:cacheprovider -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --random-order=$(TEST_ORDER) --benchmark-disable --durations=10

faults: dev apt ## inject faults (kills, full disks, clock steps …) under load; count what is lost (FAULTS=--long: for hours)
	@PYTHONPATH=src:tests $(BIN)/python -m faults.campaign $(FAULTS)

simulate: dev ## simulate a cluster, and commands, under kills, cut networks and a database that goes back, in virtual time (SEEDS=10000)
	@PYTHONPATH=src:tests $(BIN)/python -m support.cluster_simulation $(or $(SEEDS),10000)
	@PYTHONPATH=src:tests $(BIN)/python -m support.command_simulation $(or $(SEEDS),1000)

pictures: dev apt ## take the pictures of the documents from the running program
	@PYTHONPATH=src:tests $(BIN)/python -m support.pictures

clients: dev ## write the generated parts of the client libraries after a change of the API
	@mkdir -p target
	@PYTHONPATH=src $(BIN)/python -m app openapi --output target/openapi.json
	@$(BIN)/python clients/python/generate.py target/openapi.json

examples: dev ## record the examples of the API's responses after a change of the API
	@PYTHONPATH=src:tests $(BIN)/python -m security.recorded

lint: dev ## check format, lint rules, types and import laws
	@bash .ci/lint

bench: dev ## run the benchmarks (medians and ratios; they assert nothing)
	@for peer in psutil numpy orjson granian zen-engine ply rule-engine common-expression-language datalogic-py; do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $$peer || echo "==> $$peer cannot be installed here; skipped"; done
	$(BIN)/python -m pytest benches -o python_files='bench_*.py' -o python_functions='bench_* test_*' --benchmark-only --benchmark-sort=mean

wheel: setup ## build a wheel without debug symbols in dist/ (ZIG=1: for every Linux with glibc 2.28 or newer)
	$(if $(ZIG),@$(BIN)/python -m pip install --quiet --disable-pip-version-check ziglang)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m maturin build --release --strip --locked --out dist $(if $(ZIG),--zig --compatibility manylinux_2_28)

sbom: dev ## list every package, crate and library of this version with its hashes, as CycloneDX, in dist/
	@mkdir -p dist
	@PYTHONPATH=src:tests $(BIN)/python -m support.sbom dist/latchboard.cdx.json

release: wheel sbom ## put all that a release has into dist/, with SHA256SUMS (docs/how-to/verify-a-release.md)
	@cp requirements.lock requirements-build.lock deploy/systemd/install.sh deploy/systemd/latchboard.service dist/
	@cd dist && sha256sum latchboard-*.whl latchboard.cdx.json requirements.lock requirements-build.lock install.sh latchboard.service >SHA256SUMS

lock: dev ## update the lock files after a change of pyproject.toml (UPGRADE=1: to the newest versions)
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group dev --output-file requirements-dev.lock
	$(COMPILE) -c requirements-dev.lock pyproject.toml --output-file requirements.lock
	$(COMPILE) -c requirements-dev.lock --group build --output-file requirements-build.lock

clean: ## remove the environment and the build (not the data)
	rm -rf $(VENV) target $(EXTENSION)

$(VENV)/bin/python: | check
	@echo "==> Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Every lock pins versions and hashes; requirements-dev.lock holds the same versions as the other two, and more packages.
$(VENV)/.installed: requirements.lock requirements-build.lock | $(VENV)/bin/python
	@echo "==> Python packages to build and run"
	@$(INSTALL) --only-binary :all: -r requirements-build.lock
	@$(INSTALL) --no-build-isolation -r requirements.lock # isolation fetches what builds a package, without a hash
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.installed
	@echo "==> Python packages to test and lint"
	@$(INSTALL) --no-build-isolation -r requirements-dev.lock
	@touch $@

$(VENV)/.built: $(RUST_SOURCES) pyproject.toml $(VENV)/.installed
	@echo "==> Rust extension (release build; the first one takes some minutes)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

apt: # packages of the distribution for tests with real components
	@bash .ci/apt
