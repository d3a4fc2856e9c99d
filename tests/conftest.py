"""Hypothesis as the suite runs it: the same examples everywhere, and no test fails for a busy machine.

To look for new counter-examples: ``pytest --hypothesis-profile=explore``. The long forms of tests, with more examples
and kills, and those marked ``long``: ``pytest --long`` (``make test-long``).
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("steady"), max_examples=250)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run tests in their long form, and those marked long")


def pytest_configure(config):
    if config.getoption("--long"):
        settings.load_profile("long")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture
def kills(request):
    """How often to kill a process: a few times, and many in the long form."""
    return 20 if request.config.getoption("--long") else 5
