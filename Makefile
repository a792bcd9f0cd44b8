# `make run` and `make test` need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV ?= .venv
STAMP := $(VENV)/.installed
PIN := --universal --quiet --no-header --no-emit-index-url --no-emit-find-links --no-annotate --generate-hashes --python-version 3.11

.PHONY: run test lint bench pages lock clean
.DEFAULT_GOAL := help

help:
	@echo "make run    install into $(VENV) and serve examples/capsules"
	@echo "make test   install, then lint, types and tests (without those marked 'machine')"
	@echo "make lint   ruff and mypy alone"
	@echo "make bench  benchmarks against their baselines"
	@echo "make pages  renew the manual page and the completions after a change of the command line"
	@echo "make lock   renew requirements.lock, and the image's part of it"

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sidecar needs Python 3.11 or later: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(VENV)/bin/python -m compileall -q sidecar
	@touch $@

run: $(STAMP)
	$(VENV)/bin/sidecar run --config config.example.yaml

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: lint
	$(VENV)/bin/pytest -m "not machine" -n 2 --dist loadfile

bench: $(STAMP)
	$(VENV)/bin/python -m benchmarks

pages: $(STAMP)
	$(VENV)/bin/python -m tests.support.generated

lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile $(PIN) --extra test pyproject.toml requirements.build.in -o requirements.lock
	$(VENV)-lock/bin/uv pip compile $(PIN) -c requirements.lock pyproject.toml requirements.build.in -o requirements.image.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
