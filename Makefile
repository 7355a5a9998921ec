# Every word a developer or CI needs. `make help` lists them.
#
# Recipes stay one line; what is longer lives in scripts/. LOCKED is --locked in CI, so that a forgotten Cargo.lock
# is found there and costs nobody anything while writing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export LOCKED ?= $(if $(CI),--locked)
# Drawn tests draw the same in CI, so that a red run is about the change it is on. `make slow` draws anew.
ifdef CI
export PROPTEST_RNG_SEED ?= 1
# Built from what the Rust tests were built from: a release would compile every crate again and changes nothing that a test looks at.
export WHEEL_PROFILE ?= dev
endif
export CARGO_TERM_COLOR ?= $(if $(CI),never,auto)
LOGS := target/test-logs
STEP := scripts/step.sh
PY := .venv/bin/python
# What fails runs once more by itself.
AGAIN := $(PY) scripts/again.py
FUZZ_SECONDS ?= 30

.PHONY: help setup setup-build setup-bench demo test ci lint lint-rust lean lint-python fmt fmt-check test-rust interleavings test-python \
        test-scripts test-references test-servers test-cluster test-browser wheel docs docs-check bench promises promises-check requirements slow simulate chaos fuzz-smoke clean

help: ## show this list
	@awk -F ':.*## ' '/^##   / { print "\n" substr($$0, 6) } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

##   First

demo: setup-build wheel ## build the wheel, make a small dataset, train on it for two epochs, explain the waiting
	@$(PY) scripts/demo.py

test: setup ## everything a change must pass: formatting, lints, Rust, wheel, Python, docs
	@rm -rf $(LOGS) && mkdir -p $(LOGS)
	@$(STEP) "formatting" $(MAKE) fmt-check
	@$(STEP) "lints, Rust" $(MAKE) lint-rust
	@$(STEP) "lints, Python" $(MAKE) lint-python
	@$(STEP) "docs" $(MAKE) docs-check
	@$(STEP) "tests, Rust" $(MAKE) test-rust
	@$(STEP) "interleavings" $(MAKE) interleavings
	@$(STEP) "tests, scripts" $(MAKE) test-scripts
	@$(STEP) "wheel" $(MAKE) wheel
	@$(STEP) "tests, Python" $(MAKE) test-python

setup: ## install what is missing: nasm, cmake, uv, .venv with torch and JAX
	@scripts/setup.sh test

setup-build:
	@scripts/setup.sh build

setup-bench:
	@scripts/setup.sh bench

##   While writing

fmt: ## format Rust and Python in place
	cargo fmt --all
	.venv/bin/ruff format --quiet scripts python deploy
	.venv/bin/ruff check --quiet --fix scripts python deploy

fmt-check:
	cargo fmt --all --check
	.venv/bin/ruff format --check scripts python deploy

lint: lint-rust lint-python docs-check ## clippy, ruff and the docs checks; warnings are errors

lint-rust: lean
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	cargo clippy $(LOCKED) --features forebay-engine/shuttle --test interleavings -- -D warnings

lean: ## check that the engine and the command build without the optional stores
	cargo check $(LOCKED) -p forebay-engine -p forebay-cli --no-default-features

lint-python:
	.venv/bin/ruff check scripts python deploy

test-rust: ## Rust unit, integration and doc tests
	$(AGAIN) rust cargo test $(LOCKED) --no-fail-fast --lib --bins --tests
	$(AGAIN) rust-doc cargo test $(LOCKED) --no-fail-fast --doc

interleavings: ## the data path under thousands of drawn interleavings of its threads and tasks
	@mkdir -p $(LOGS)
	cargo test $(LOCKED) --features forebay-engine/shuttle --test interleavings 2>&1 | tee $(LOGS)/rust-interleavings.log

test-python: ## pytest on the installed wheel (`make wheel` first)
	$(AGAIN) pytest $(PY) -m pytest python/tests

test-scripts:
	@mkdir -p $(LOGS)
	$(PY) -m pytest scripts/tests --junitxml=$(LOGS)/pytest-scripts.xml

test-references: setup-bench ## files to and from WebDataset, TensorFlow, MosaicML, LitData, `datasets`, pyarrow, which it installs (`make wheel` first); says what it skipped
	@mkdir -p $(LOGS)
	$(PY) -m pytest python/tests/test_references.py --junitxml=$(LOGS)/pytest-references.xml

test-servers: ## Rust tests against real MinIO, AIStore, Cassandra and HDFS, which it installs; says what it skipped
	@scripts/servers/test.sh

test-cluster: ## the service on real clusters: etcd, Kubernetes, Ray, three tiers; says what it skipped (`make wheel` first); PARTS=ray takes a part
	@scripts/cluster/test.sh $(PARTS)

test-browser: ## the dashboard and reports in a real Chromium, which it installs; says what it skipped; screenshots in target
	@scripts/browser/test.sh

wheel: ## build the wheel and install it into .venv: a release, or what WHEEL_PROFILE says
	@scripts/wheel.sh

docs: docs-check ## check the written docs and build the Rust reference into target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --workspace --no-deps

docs-check:
	$(PY) scripts/check_docs.py

promises: ## show all promises with their tests in the last run, and renew docs/reference/promises.md
	@$(PY) scripts/promises.py --write

promises-check:
	@$(PY) scripts/promises.py --check

##   Now and then

bench: setup-bench wheel ## run all benches, keep the figures in target/bench, print the bars that do not hold
	@$(PY) scripts/bench.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PEER_ROUNDS),--peer-rounds $(PEER_ROUNDS)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(BENCH)

slow: setup wheel ## the same tests at full sizes and many more random cases
	@mkdir -p $(LOGS)
	FOREBAY_SLOW=1 PROPTEST_CASES=$${PROPTEST_CASES:-4096} cargo test $(LOCKED) --release --no-fail-fast 2>&1 | tee $(LOGS)/rust-slow.log
	FOREBAY_SLOW=1 $(PY) -m pytest python/tests -m slow --timeout 1800 --junitxml=$(LOGS)/pytest-slow.xml

simulate: ## a thousand schedules of faults for each simulated cluster, also with 1,000 workers and 10,000 consumers
	FOREBAY_SLOW=1 cargo test $(LOCKED) --release -p forebay-core --test dispatcher_simulation -- --nocapture

chaos: setup wheel ## kill workers, dispatchers and jobs of a service in a hundred runs, each of which must be exact
	$(PY) -m pytest python/tests/test_service_kills.py -m "slow or not slow" --timeout 1800 --junitxml=$(LOGS)/pytest-chaos.xml

fuzz-smoke: ## fuzz every parser of outside bytes for FUZZ_SECONDS (30) each
	@scripts/fuzz.sh $(FUZZ_SECONDS)

requirements: ## lock scripts/requirements-*.in into .txt
	@for set in build test bench peers cluster browser; do \
	  (cd scripts && ./uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
	    requirements-$$set.in -o requirements-$$set.txt); done

ci: ## what CI runs
	@.ci/run

clean: ## remove everything that was built or installed here
	cargo clean
	rm -rf .venv .venv-peers .venv-cluster .cache dist .pytest_cache .mypy_cache .ruff_cache
