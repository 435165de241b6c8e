# Each target works first, alone, and in any order: all make the virtual environment they
# need, in .venv, once, and again when setup.cfg asks for something else.

# Another Python has an environment of its own: `make test PYTHON=python3.13` uses .venv-python3.13.
PYTHON :=
VENV := .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
RUN := $(VENV)/bin/python
STAMP := $(VENV)/installed
CHECKED := optdb tests profiles conformance memcheck models examples

.PHONY: demo bench growth test lint conformance memcheck fuzz clean

## A table and a plot: how long Theano's optimizer takes for some models, with and without optdb
demo: $(STAMP)
	@mkdir -p build
	$(RUN) -m profiles.compare resnet50 sb_resnet gru30 mixture lstm --plot build/compare.png

## The same for all models, with more repeats, kept in build/
bench: $(STAMP)
	@mkdir -p build
	$(RUN) -m profiles.compare --repeat 5 --json build/bench.json --plot build/bench.png

## Time per node for graphs of 1,000 to 64,000 nodes
growth: $(STAMP)
	@mkdir -p build
	$(RUN) -m profiles.growth --json build/growth.json --plot build/growth.png

## Every other file by a second process, whose report comes at the end
test: $(STAMP)
	@mkdir -p build
	@OPTDB_TESTS_HALF=2 $(RUN) -m pytest --durations=15 > build/tests-2.txt 2>&1 & other=$$!; \
	OPTDB_TESTS_HALF=1 $(RUN) -m pytest --durations=15; status=$$?; \
	wait $$other || status=$$?; cat build/tests-2.txt; exit $$status

lint: $(STAMP)
	$(RUN) -m ruff check $(CHECKED)
	$(RUN) -m ruff format --check $(CHECKED)

## Theano's own test suites, with the engine and without
conformance: $(STAMP)
	$(RUN) -m conformance

## Every kernel in a simulator that checks each access to memory
memcheck: $(STAMP)
	$(RUN) -m memcheck

## Random functions on a device, against Theano without any optimization
fuzz: $(STAMP)
	$(PYTHON) -m fuzzing --examples 20000

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): setup.cfg pyproject.toml .ci/venv .ci/oldest.txt
	.ci/venv $(VENV) $(PYTHON)
	@touch $@
