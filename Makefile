# Every target makes the virtual environment it needs and uses it again next time.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
JOBS ?= 2
ALL ?= .venv-all
BENCH ?= .venv-bench
LOWEST ?= .venv-lowest
SPARK ?= .venv-spark
FLINK ?= .venv-flink
# What touches every dependency, in a few minutes.
SHORT := tests/features tests/estimators tests/persistence tests/cli/test_help.py tests/cli/test_cli.py tests/stacks/test_wrapped.py tests/serving/test_serving_requests.py
# Kernels are compiled once for all environments.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.numba_cache
BENCH_PIP := $(BENCH)/bin/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-all test-long test-lowest test-pythons mutants brokers test-nojit lint format bench paper docs wheel clean

demo: $(VENV)/.ready        ## learn the shipped electricity stream and draw what happened
	$(BIN)/python -m streamboost demo

test: $(VENV)/.ready        ## all tests and doctests; kernels are compiled first, so that no two workers compile the same
	$(BIN)/python -m streamboost warmup --networks --jobs 2
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-all: $(ALL)/.ready $(SPARK)/.ready $(FLINK)/.ready brokers  ## besides: what needs torch, a broker, a browser, Spark or Flink
	$(ALL)/bin/python -m streamboost warmup --networks --jobs 2
	$(ALL)/bin/python -m pytest -n $(JOBS) --dist loadfile tests/heavy tests/sources/test_messages.py

test-long: $(VENV)/.ready $(ALL)/.ready $(SPARK)/.ready $(FLINK)/.ready brokers  ## both, long: 20 kills for 5, more examples, all combinations for all pairs
	$(BIN)/python -m streamboost warmup --networks --jobs 2
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --long
	$(ALL)/bin/python -m pytest -n $(JOBS) --dist loadfile --long tests/heavy tests/sources/test_messages.py

mutants: $(VENV)/.ready     ## break the source in some ninety ways, and see that tests notice; half an hour
	$(BIN)/python tests/mutants/run.py

brokers:                    ## Redis, Kafka and Chromium for these tests, where they are missing
	sh tests/heavy/servers.sh

test-lowest: $(LOWEST)/.ready  ## the short suite with the lowest version of everything that pyproject.toml asks for
	$(LOWEST)/bin/python -m pytest --lowest -n $(JOBS) --dist worksteal -m "not slow" -k "not bash_itself" $(SHORT)

test-pythons:               ## the short suite on every Python from 3.11 on that is at hand
	for python in 3.11 3.12 3.13 3.14 3.15; do \
	  command -v python$$python >/dev/null && python$$python -c pass 2>/dev/null || continue; \
	  python$$python -m venv .venv-$$python && .venv-$$python/bin/python -m pip --quiet install -c constraints.txt -e '.[test]' && \
	  .venv-$$python/bin/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(SHORT) || exit 1; done

test-nojit: $(VENV)/.ready  ## the kernels once more as plain Python
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(JOBS) -m "not slow" tests/kernels tests/features/test_binning.py tests/stacks/test_tree.py tests/stacks/test_linear.py

lint: $(VENV)/.ready        ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH)/.ready $(ALL)/.ready  ## accuracy and speed beside River, CapyMOA (where there is a JVM), Vowpal Wabbit and LightGBM
	for script in run report bench_throughput bench_tree_kernels bench_flat bench_first_use bench_drift bench_ablation bench_covtype bench_scale; do \
	  OMP_NUM_THREADS=1 $(BENCH)/bin/python -m benchmarks.$$script || exit 1; done
	for script in bench_neural bench_run bench_requests bench_serve bench_freeze bench_checkpoints bench_keyed bench_partitions bench_intervals; do \
	  OMP_NUM_THREADS=1 $(ALL)/bin/python -m benchmarks.$$script || exit 1; done

paper: $(VENV)/.ready       ## the paper's table and figures as a page, what is missing run; QUICK=1 for small sizes
	$(BIN)/python -m experiments $(if $(QUICK),--quick)

docs: $(VENV)/.ready        ## the pages in docs/ and the API as HTML, in site/
	$(PIP) install -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

wheel: $(VENV)/.ready       ## build the wheel and try it in an environment of its own
	rm -rf dist $(VENV)/wheel
	$(PIP) wheel --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(VENV)/wheel
	$(VENV)/wheel/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt dist/*.whl
	cd / && env -u NUMBA_CACHE_DIR "$(abspath $(VENV))/wheel/bin/python" -m streamboost demo --rows 2000 --no-picture

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@

$(ALL)/.ready: pyproject.toml constraints.txt
	test -x $(ALL)/bin/python || $(PYTHON) -m venv $(ALL)
	$(ALL)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[heavy]'
	touch $@

$(SPARK)/.ready: pyproject.toml constraints.txt  # whose state wants an older pandas
	test -x $(SPARK)/bin/python || $(PYTHON) -m venv $(SPARK)
	sed 's/^pandas==.*/pandas==2.3.3/' constraints.txt > $(SPARK)/constraints.txt
	$(SPARK)/bin/python -m pip --disable-pip-version-check --quiet install -c $(SPARK)/constraints.txt -e '.[spark]'
	touch $@

$(FLINK)/.ready: pyproject.toml constraints.txt  # whose pins are older than ours, and are left aside
	test -x $(FLINK)/bin/python || $(PYTHON) -m venv $(FLINK)
	$(FLINK)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[flink]'
	$(FLINK)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt --no-deps apache-flink apache-flink-libraries apache-beam
	touch $@

$(LOWEST)/.ready: pyproject.toml constraints.txt .ci/lowest_versions.py
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python .ci/lowest_versions.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install -c $(LOWEST)/lowest.txt -e '.[test]'
	touch $@

$(BENCH)/.ready: pyproject.toml constraints.txt
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH_PIP) install -c constraints.txt -e '.[bench,river,plot]'
	if command -v java >/dev/null; then \
	  $(BENCH_PIP) install -c constraints.txt jpype1 Deprecated seaborn tqdm typing_extensions && \
	  $(BENCH_PIP) install --no-deps capymoa==0.15.1; fi
	touch $@

clean:
	rm -rf $(VENV) $(ALL) $(BENCH) $(LOWEST) $(SPARK) $(FLINK) .venv-3.* dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .numba_cache
