"""The contracts of stacks and losses, runnable by anyone on their own.

Each contract is a row of small ``check_*`` functions. One call runs them all and raises an ``AssertionError`` that
says what was promised and what happened instead; to see them one by one, loop over :data:`STACK_CHECKS` and
:data:`LOSS_CHECKS`, with pytest's ``parametrize`` for example.

Examples
--------
A stack that learns while it predicts breaks its promise:

>>> from streamboost.stacks import LinearStack
>>> check_stack(lambda: LinearStack(3))
>>> class Restless(LinearStack):
...     def predict(self, X):
...         self._weights += 0.01
...         return super().predict(X)
>>> check_stack(lambda: Restless(3))
Traceback (most recent call last):
    ...
AssertionError: Restless: a learner that has learned nothing says 0; one said 0.01.
"""

from streamboost.testing.loss_checks import LOSS_CHECKS, LossCase, check_loss
from streamboost.testing.stack_checks import STACK_CHECKS, StackCase, check_stack

__all__ = ["LOSS_CHECKS", "STACK_CHECKS", "LossCase", "StackCase", "check_loss", "check_stack"]
