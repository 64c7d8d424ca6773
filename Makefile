# `make verify` and `make test` do everything on a machine that has Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: verify test lint nightly setup clean

verify: .venv/ready
	$(BIN)/parity verify --suite smoke --report report

test: .venv/ready .venv/production
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

# Other people's gfx950 kernels and the Triton that they bring; without them their tests are skipped, and say so.
.venv/production: .venv/ready
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		tokenspeed-kernel-amd==0.1.4 tokenspeed-triton==3.9.10.post20261028
	touch $@

clean:
	rm -rf .venv report
