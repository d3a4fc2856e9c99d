"""Hypothesis as the suite runs it: the same examples everywhere, and no test fails for a busy machine.

To look for new counter-examples: ``pytest --hypothesis-profile=explore``.
"""

from pathlib import Path

from hypothesis import settings

import streamboost

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")


def pytest_configure() -> None:
    """Let nothing compiled outlive a change: Numba looks only at the file of the function that was called."""
    package = Path(streamboost.__file__).parent
    changed = max(file.stat().st_mtime for file in package.rglob("*kernels.py"))
    for file in package.rglob("__pycache__/*.nb[ic]"):
        if file.stat().st_mtime < changed:
            file.unlink(missing_ok=True)
