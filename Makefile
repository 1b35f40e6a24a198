# make demo    replay a recording that ships with the project and draw it: the first thing to run
# make test    set up and run all tests
# make lint    style, types and import contracts
# make bench   speed and memory, as ratios in one run
# make plots   remake the figures and the output that the documentation shows

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= out/demo
RECORDING := scenarios/torch214_stub_train.pickle

.PHONY: demo test lint bench plots clean

demo: $(VENV)/.run
	@mkdir -p $(DEMO)
	$(BIN)/lifecycle-sim peak $(RECORDING)
	$(BIN)/lifecycle-sim plot $(RECORDING) --kind timeline --by owner -o $(DEMO)/timeline.png --force
	$(BIN)/lifecycle-sim plot $(RECORDING) --kind composition --by owner -o $(DEMO)/composition.png --force
	$(BIN)/lifecycle-sim plot $(RECORDING) --kind lifecycle -o $(DEMO)/lifecycle.png --force
	@echo "The figures are in $(DEMO)."

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.test
	$(BIN)/python -m pytest benchmarks --benchmark-only --benchmark-enable -s

plots: $(VENV)/.run
	$(BIN)/python -m plots.remake

clean:
	rm -rf $(VENV) out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,torch,arrow,plan]'
	@touch $@ $(VENV)/.run
