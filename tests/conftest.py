"""Hypothesis as the suite runs it: the same examples everywhere, and no test fails for a busy machine.

To look for new counter-examples: ``pytest --hypothesis-profile=explore``.
"""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")
