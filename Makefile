# Each target works first, alone, and in any order: all make the virtual environment they
# need, in .venv, once, and again when setup.cfg asks for something else.

# Another Python has an environment of its own: `make test PYTHON=python3.13` uses .venv-python3.13.
PYTHON :=
VENV := .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
RUN := $(VENV)/bin/python
STAMP := $(VENV)/installed
# The libraries of models/ have pins of their own, and so an environment of their own.
MODELS_VENV := build/models-venv$(if $(PYTHON),-$(notdir $(PYTHON)))
MODELS_STAMP := $(MODELS_VENV)/installed
# What needs no Theano is tested where it is not installed, by the newest Python that there is.
BARE_VENV := .venv-without-theano
BARE_STAMP := $(BARE_VENV)/installed
# PyTensor, PyMC and nutpie, beside which Theano is not installed.
PYTENSOR_VENV := .venv-pytensor
PYTENSOR_STAMP := $(PYTENSOR_VENV)/installed
# What needs no Theano. `make test-all` runs it once, in the environment without Theano where there is one.
DEVICE_TESTS := tests/codegen tests/device tests/runtime
PYTENSOR_TESTS := tests/profiles/pytensor tests/pytensor tests/host/pytensor \
	'tests/test_docs.py::test_code_runs_and_prints_what_the_page_shows[pytensor.md]' \
	'tests/test_docs.py::test_code_runs_and_prints_what_the_page_shows[start/pymc.md]'
NEWER_PYTHONS := python3.14 python3.13 python3.12
DOCS_STAMP := $(VENV)/installed-docs
CHECKED := optdb tests profiles conformance memcheck emulation fuzzing models examples docs stubs

# Minutes on two cores that do nothing else, of a clean clone, installation aside. CONTRIBUTING.md has the same numbers,
# which a test asserts.
DEMO_MINUTES := 1
TEST_MINUTES := 9
TEST_ALL_MINUTES := 35
DOCS_MINUTES := 3

.PHONY: help demo bench growth test test-all test-theano repeats slow-tests test-clusters test-device pytensor test-pytensor lint rules types docs linkcheck dist conformance memcheck models fuzz fuzz-claims fuzz-files fuzz-pytensor fuzz-quality fuzz-states fuzz-tiers clean

## This list
help:
	@awk '/^## /{text = substr($$0, 4)} /^[a-z][a-z-]*:/{if (text) {sub(":.*", ""); printf "%-14s %s\n", $$0, text}; text = ""}' \
		$(MAKEFILE_LIST)

## Starts of programs with optdb and without, and on a device: a table and a plot
demo: $(STAMP)
	@echo "make demo takes about $(DEMO_MINUTES) min on two cores"
	$(RUN) -m profiles.demo --plot build/demo.png

## The optimizer's phases for all models, with repeats, kept in build/
bench: $(STAMP)
	@mkdir -p build
	$(RUN) -m profiles.compare --repeat 5 --json build/bench.json --plot build/bench.png

## Time per node for graphs of 1,000 to 64,000 nodes
growth: $(STAMP)
	@mkdir -p build
	$(RUN) -m profiles.growth --json build/growth.json --plot build/growth.png

# Tests start hundreds of processes, which import the package from bytecode. Without it, each compiles 400 modules.
unexport PYTHONDONTWRITEBYTECODE

# All processors run tests, and one process more, since tests wait for processes that they start; whichever is done takes
# over half of what another one has left.
PYTEST_OPTIONS := --numprocesses $(shell expr $$(nproc) + 1) --dist worksteal --durations 15
PYTEST = $(RUN) -m pytest $(PYTEST_OPTIONS)
# Two of these run at a time: one starts, collects tests or waits for its last ones, while another one computes.
AT_ONCE := types test-device test-pytensor memcheck
# How long each test took goes into a file.
DURATIONS := --junitxml build/durations
# What each test executes.
RECORDS := $(CURDIR)/build/records

## The quick tests: those that are not marked slow, with a quarter of Hypothesis's examples
test: $(STAMP)
	@echo "make test takes about $(TEST_MINUTES) min on two cores; make test-all has the rest"
	OPTDB_TESTS=quick $(PYTEST)

## All tests with all examples, each once, then types and memcheck; test-clusters is apart
test-all: $(STAMP)
	@echo "make test-all takes about $(TEST_ALL_MINUTES) min on two cores"
	$(MAKE) test-theano
	$(MAKE) --jobs 2 --output-sync $(AT_ONCE)

## All tests that need Theano, but for test-clusters
test-theano: $(STAMP)
	$(PYTEST) -m "" $(DURATIONS)/tests.xml $(foreach path,$(DEVICE_TESTS) tests/distributed/test_clusters.py,--ignore $(path))

## Write the list of cases that quick runs omit, since they execute only what other tests also execute
repeats: $(STAMP)
	rm -rf $(RECORDS)
	-OPTDB_TESTS=quick COVERAGE_CORE=ctrace OPTDB_TEST_RECORDS=$(RECORDS) PYTEST_ADDOPTS="-p tests.repeats" \
		$(MAKE) --keep-going test-theano test-device test-pytensor
	$(RUN) -m tests.repeats choose $(RECORDS)
	$(RUN) -m tests.repeats cover $(RECORDS)

## Data-parallel training on clusters of dask, whose workers are killed: what waits for processes to start
test-clusters: $(STAMP)
	$(RUN) -m pytest -m "" tests/distributed/test_clusters.py

## The 40 quick tests that take longest: those of more than 0.8 CPU seconds need the mark slow
slow-tests: $(STAMP)
	$(PYTEST) --durations 40 -m "not slow"

## All tests of kernels and the runtime, by the newest Python that there is and the newest NumPy, without Theano
test-device:
	@if .ci/python $(NEWER_PYTHONS) >/dev/null; then \
		$(MAKE) $(BARE_STAMP) && $(BARE_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) -m "" $(DURATIONS)/device.xml $(DEVICE_TESTS); \
	else \
		$(MAKE) $(STAMP) && $(PYTEST) -m "" $(DURATIONS)/device.xml $(DEVICE_TESTS); \
	fi

## An environment with PyTensor, PyMC and nutpie, by the newest Python that there is, in .venv-pytensor
pytensor: $(PYTENSOR_STAMP)

## PyTensor's functions on a device, quick tests, where Theano is not installed
test-pytensor:
	@if .ci/python $(NEWER_PYTHONS) >/dev/null; then \
		$(MAKE) $(PYTENSOR_STAMP) && OPTDB_TESTS=quick $(PYTENSOR_VENV)/bin/python -m pytest $(PYTEST_OPTIONS) $(DURATIONS)/pytensor.xml $(PYTENSOR_TESTS); \
	else \
		echo "test-pytensor is left out: PyTensor needs Python 3.12 or newer, and none of $(NEWER_PYTHONS) runs here"; \
	fi

## Rules, format and types
lint: rules types

rules: $(STAMP)
	$(RUN) -m ruff check $(CHECKED)
	$(RUN) -m ruff format --check $(CHECKED)

types: $(STAMP)
	$(RUN) -m mypy

## The documentation's site, in build/docs; a warning is an error
docs: $(DOCS_STAMP)
	@echo "make docs takes about $(DOCS_MINUTES) min on two idle cores, since it runs the tutorials"
	$(RUN) -m sphinx -W --keep-going -q -d build/doctrees -b html docs build/docs
	@echo "open build/docs/index.html"

## Whether links to other sites still lead somewhere
linkcheck: $(DOCS_STAMP)
	$(RUN) -m sphinx -q -d build/doctrees -b linkcheck docs build/linkcheck

## Wheel and sdist, in dist, checked as a package index does
dist: $(STAMP)
	rm -rf dist
	$(RUN) -m build
	$(RUN) -m twine check --strict dist/*

## Theano's own test suites, with the engine and without
conformance: $(STAMP)
	$(RUN) -m conformance

## Every kernel under a memory checker (Oclgrind)
memcheck: $(STAMP)
	$(RUN) -m memcheck $(if $(filter quick,$(OPTDB_TESTS)),--once)

## Models of Keras, Lasagne and PyMC3 with the engine and on a device, compared with stock Theano
models: $(MODELS_STAMP)
	@echo "make models takes about an hour and a half"
	$(MODELS_VENV)/bin/python -m models --json build/models.json

## Random functions under random switches, against Theano without any optimization
fuzz: $(STAMP)
	@mkdir -p build
	$(RUN) -m fuzzing --examples 20000 --pairs build/pairs.json
	$(RUN) -m fuzzing.convolutions --examples 5000
	$(RUN) -m fuzzing.scalars --rounds 50

## Shared variables used by functions of the host and of a device in turn, against a model in NumPy
fuzz-states: $(STAMP)
	$(RUN) -m fuzzing.states --runs 5000 --steps 30

## Functions with tiers in every state, called in threads and with interrupts
fuzz-tiers: $(STAMP)
	nice -n 10 $(RUN) -m fuzzing.tiers --runs 2000

## Shared variables of PyTensor's used by functions of all modes in turn, against PyTensor's Python
fuzz-pytensor: pytensor
	nice -n 10 .venv-pytensor/bin/python -m fuzzing.pytensor --runs 2000

## Functions whose types claim what values break, and odd arguments, on a device, against Theano's Python
fuzz-claims: $(STAMP)
	$(RUN) -m fuzzing.claims --examples 4000

## 100,000 altered files of plans, each of which is to be refused in words, or to do what it says
fuzz-files: $(STAMP)
	nice -n 10 $(RUN) -m fuzzing.files

## Random nets, densities and recurrences, of whose graphs none may be larger than stock Theano's
fuzz-quality: $(STAMP)
	nice -n 10 $(RUN) -m fuzzing.quality --hash-seed 0 --hash-seed 1 --hash-seed 2

## Remove what the others made, but for .venv
clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): setup.cfg pyproject.toml .ci/venv .ci/opencl .ci/packages.sh .ci/oldest.txt
	.ci/venv $(VENV) $(PYTHON)
	@touch $@

$(BARE_STAMP): setup.cfg pyproject.toml
	"$$(.ci/python $(NEWER_PYTHONS))" -m venv --clear $(BARE_VENV)
	$(BARE_VENV)/bin/python -m pip install --quiet --editable '.[oclgrind,test]'
	.ci/opencl $(BARE_VENV)
	! $(BARE_VENV)/bin/python -c 'import theano' 2>/dev/null
	@touch $@

$(PYTENSOR_STAMP): setup.cfg pyproject.toml
	@path="$$(.ci/python $(NEWER_PYTHONS))" || \
		{ echo "PyTensor needs Python 3.12 or newer, and none of $(NEWER_PYTHONS) runs here: install one of them"; exit 1; }; \
	"$$path" -m venv --clear $(PYTENSOR_VENV)
	$(PYTENSOR_VENV)/bin/python -m pip install --quiet --editable '.[nutpie,oclgrind,profiles,test]'
	.ci/opencl $(PYTENSOR_VENV)
	! $(PYTENSOR_VENV)/bin/python -c 'import theano' 2>/dev/null
	@touch $@

$(MODELS_STAMP): $(STAMP) models/requirements.txt models/libraries.txt
	$(RUN) -m venv $(MODELS_VENV)
	$(MODELS_VENV)/bin/python -m pip install --quiet --editable '.[opencl]' --requirement models/requirements.txt
	$(MODELS_VENV)/bin/python -m optdb install-theano --quiet
	$(MODELS_VENV)/bin/python -m pip install --quiet --no-deps --requirement models/libraries.txt
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(RUN) -m pip install --quiet --editable '.[docs]'
	@touch $@
