# Every target makes the virtual environment it needs and uses it again next time.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
JOBS ?= 2

.PHONY: demo test test-nojit lint format bench docs wheel clean

demo: $(VENV)/.ready        ## learn the shipped electricity stream and draw what happened
	$(BIN)/python -m streamboost.demo

test: $(VENV)/.ready        ## all tests and doctests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-nojit: $(VENV)/.ready  ## the kernels once more as plain Python
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(JOBS) -m "not slow" tests/test_binning.py tests/test_tree.py tests/test_linear.py

lint: $(VENV)/.ready        ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready       ## rows per second and tree growth, as ratios
	$(PIP) install -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/bench_accuracy.py
	$(BIN)/python benchmarks/bench_throughput.py
	$(BIN)/python benchmarks/bench_tree_kernels.py

docs: $(VENV)/.ready        ## the pages in docs/ and the API as HTML, in site/
	$(PIP) install -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

wheel: $(VENV)/.ready       ## build the wheel and try it in an environment of its own
	rm -rf dist $(VENV)/wheel
	$(PIP) wheel --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(VENV)/wheel
	$(VENV)/wheel/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt dist/*.whl
	cd / && "$(abspath $(VENV))/wheel/bin/python" -m streamboost.demo --rows 2000 --no-picture

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
