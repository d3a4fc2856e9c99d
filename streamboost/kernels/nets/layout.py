"""How the numbers of N small networks are laid out: the places in ``plan`` and ``numbers``, and the three sections."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled_inside

Array: TypeAlias = NDArray[Any]  # float32 or float64: the learners' own precision
Ints: TypeAlias = NDArray[np.int64]

# Places in plan.
LEARNERS, UNITS, POSITIONS, OUTPUTS, INPUTS, ACTIVATION, RULE, SCALED, AVERAGED = range(9)
DEPTH, HEIGHT, WIDTH, KERNEL, STRIDE, PADDING, ROWS_OUT, COLUMNS_OUT = range(9, 17)  # of images
PLAN_SIZE = 17

# Places in numbers, and in scale.
RATE, BETA1, BETA2, EPS, AVERAGING_POWER = range(5)
UNIT, SUM, WEIGHT = range(3)

BLOCK = 32  # rows taken at a time, so that their hidden layer stays in the nearest cache


class Nets(NamedTuple):
    """All that N networks know: see :mod:`streamboost.kernels.nets.stacks`."""

    plan: Ints  # (PLAN_SIZE,), shapes and choices
    numbers: FloatArray  # the constants of the update rule
    parameters: Array  # (n_parameters,), as all of the next three, which may also be of no length
    first: Array  # what the update rule remembers of past gradients
    second: Array  # and of their squares
    average: Array  # of the parameters
    steps: Ints  # (2, N), taken, and averaged over
    scale: FloatArray  # (3, N): unit, and discounted sums of weight * mean square of targets and of weight


@compiled_inside
def section_of(plan: Ints, section: int) -> tuple[int, int, int]:
    """Where a section begins, how often all learners occur in it, and how many numbers one has there each time."""
    N, C, m, p = plan[LEARNERS], plan[UNITS], plan[OUTPUTS], plan[INPUTS]
    Q = C * plan[POSITIONS]
    if section == 0:
        return (0, p, C) if plan[KERNEL] == 0 else (0, 1, C * p)
    if section == 1:
        return N * C * p, m, Q
    return N * (C * p + m * Q), 1, m
