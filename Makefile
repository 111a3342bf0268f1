# Two commands do all: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
ASSETS := $(VENV)/.assets

.PHONY: setup demo test check bench soak fuzz docs lock clean

setup: $(ASSETS)

$(SETUP): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "headrace needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(ASSETS): $(SETUP) $(wildcard src/headrace/lab/assets/*.py src/headrace/lab/assets/*.lock src/headrace/lab/assets/*.toml)
	$(BIN)/python -m headrace.lab.assets
	@touch $@

demo: setup
	$(BIN)/python -m headrace.lab.demo

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: setup check
	$(BIN)/pytest

bench: setup
	$(BIN)/python -m bench

soak: setup
	$(BIN)/python -m bench.soak

docs: $(SETUP)
	$(BIN)/python -m headrace.cli.reference

fuzz: setup
	$(BIN)/python -m bench.fuzz

lock:
	uv pip compile pyproject.toml --all-extras --universal --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 -o requirements/dev.lock

clean:
	rm -rf $(VENV)
