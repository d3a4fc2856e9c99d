"""Tests against PyTorch: they are skipped where it is not installed.

The examples in the docstrings are marked to be skipped, since the other tests do without it; here they are run.
"""

import doctest

import pytest

collect_ignore = ["flink_job.py", "spark_job.py"]  # programs for Pythons that have Flink or Spark
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.fixture
def run_examples():
    """Run the examples of a class as if they were not to be skipped; return how many there were."""

    def run(cls):
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        found = doctest.DocTestFinder(recurse=False).find(cls, cls.__name__)
        for test in found:
            for example in test.examples:
                example.options.pop(doctest.SKIP, None)
            runner.run(test)
        assert runner.failures == 0
        return runner.tries

    return run
