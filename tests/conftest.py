"""Hypothesis as the suite runs it: the same examples everywhere, and no test fails for a busy machine.

To look for new counter-examples: ``pytest --hypothesis-profile=explore``. The long forms of tests, with more examples
kills and combinations, and those marked ``long``: ``pytest --long`` (``make test-long``). ``--lowest`` bears with what
old dependencies say of one another (``make test-lowest``).
"""

from itertools import product

import pytest
from hypothesis import HealthCheck, settings
from pairwise import each, pairwise

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("steady"), max_examples=250)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run tests in their long form, and those marked long")
    parser.addoption("--lowest", action="store_true", help="let old dependencies use what newer ones deprecate")


def pytest_configure(config):
    if config.getoption("--long"):
        settings.load_profile("long")
    if config.getoption("--lowest"):
        for action, module in (("ignore", ""), ("error", "streamboost")):
            config.addinivalue_line("filterwarnings", f"{action}::DeprecationWarning:{module}")


def pytest_generate_tests(metafunc):
    """Run a test marked ``pairwise`` or ``each`` over some combinations of its axes; in the long form, over all."""
    is_long = metafunc.config.getoption("--long")
    for name, some in (("pairwise", pairwise), ("each", each)):
        for mark in metafunc.definition.iter_markers(name):
            combinations = (product if is_long else some)(*mark.kwargs.values())
            metafunc.parametrize(tuple(mark.kwargs), list(combinations), ids=id_of)


def id_of(value):
    """Name a value in the name of a test; None leaves that to pytest."""
    if isinstance(value, tuple) and value:
        return id_of(value[0]) or str(value[0])
    if value is None or isinstance(value, (str, int, float, type)) or callable(value):
        return None
    return repr(value) if len(repr(value)) < 60 else type(value).__name__


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture
def kills(request):
    """How often to kill a process: a few times, and many in the long form."""
    return 20 if request.config.getoption("--long") else 5
