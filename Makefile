# One task runner. `make check` is exactly what CI runs.
#
# Every target makes the virtual environment it needs; nothing but a Python >= 3.11 and make has to
# be there. `make PYTHON=/path/to/python3.13 check` uses another interpreter (after `make clean`).

PYTHON ?= python3
# Tests run on this many processes; `make test JOBS=0` runs them in one, for a debugger.
JOBS ?= auto
# More arguments for pytest or the benchmarks: `make test ARGS='-k lease'`, `make bench ARGS=--quick`.
ARGS ?=

BIN := .venv/bin
DEMO_BIN := .venv-demo/bin
BENCH_BIN := .venv-bench/bin
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints-dev.txt
INPUTS := pyproject.toml constraints-dev.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types bench crash crash-mutants drill clients clean

help:
	@echo 'make demo    run the example (examples/stdlib-survey) with the runtime dependencies only'
	@echo 'make test    the fast tests'
	@echo 'make check   style, types and the fast tests: what CI runs'
	@echo 'make crash   the long crash tests, with a new seed each time (CRASH_SEED=n for one again)'
	@echo 'make crash-mutants   take durability away step by step; each must be noticed'
	@echo 'make drill   the fault drill: forty workers that die, lie and stall (DRILL_SEED=n again)'
	@echo 'make clients the real Claude Code, Codex and Gemini CLI from npm, about 900 MB each time'
	@echo 'make bench   the benchmarks, about 8 minutes'
	@echo 'make clean   remove environments, caches and build results'

# A stamp is written last, so an installation that was interrupted is made again from nothing.
.venv/.stamp: $(INPUTS)
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	touch $@

.venv-demo/.stamp: $(INPUTS)
	rm -rf .venv-demo
	$(PYTHON) -m venv .venv-demo
	$(DEMO_BIN)/python -m pip install $(PIP_FLAGS) -e .
	touch $@

demo: .venv-demo/.stamp
	$(DEMO_BIN)/python examples/stdlib-survey/demo.py

test: .venv/.stamp
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# Cheap before dear: a style or type mistake is told before the tests start.
check: lint types
	@$(MAKE) test

lint: .venv/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.stamp
	$(BIN)/mypy --strict src

# Installed from a wheel: an editable installation costs a process more at its start than it saves.
.venv-bench/.dependencies: $(INPUTS)
	rm -rf .venv-bench
	$(PYTHON) -m venv .venv-bench
	$(BENCH_BIN)/python -m pip install $(PIP_FLAGS) .
	touch $@

.venv-bench/.stamp: .venv-bench/.dependencies $(shell find src -name '*.py')
	$(BENCH_BIN)/python -m pip install $(PIP_FLAGS) --no-deps --force-reinstall .
	touch $@

bench: .venv-bench/.stamp
	$(BENCH_BIN)/python tests/bench/run.py $(ARGS)

# No time limit a test: exhaustive runs take minutes each.
crash: .venv/.stamp
	$(BIN)/python -m pytest -m crash_full --timeout=0 -n $(JOBS) $(ARGS)

# Two at a time, each in a copy of src; ARGS='lease batch' tries those whose name has such a word.
crash-mutants: .venv/.stamp
	$(BIN)/python tests/crash/mutants.py $(ARGS)

# With a new seed each time; the drill prints it. One at a time: forty workers are enough.
drill: .venv/.stamp
	$(BIN)/python -m pytest -m drill_full --timeout=0 -rP $(ARGS) tests/drill

# Against a model API on loopback. Without npm, or its registry, they are skipped and say so.
clients: .venv/.stamp
	$(BIN)/python -m pytest -m clients --timeout=1200 -rs $(ARGS) tests/clients

clean:
	rm -rf .venv .venv-demo .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
