"""Hypothesis as the suite runs it: the same examples everywhere, and no test fails for a busy machine.

To look for new counter-examples: ``pytest --hypothesis-profile=explore``.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")
