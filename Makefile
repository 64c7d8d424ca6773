# `make verify` and `make test` do everything on a machine that has Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: verify test lint nightly setup clean

verify: .venv/ready
	$(BIN)/parity verify --suite smoke --report report

test: .venv/ready
	$(BIN)/python -m pytest -n $(WORKERS) -q

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

nightly: .venv/ready
	$(BIN)/parity verify --suite nightly --report report/nightly --json report/nightly/summary.json

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt .ci/setup
	PYTHON="$(PYTHON)" .ci/setup

clean:
	rm -rf .venv report
