"""How the numbers of N small networks are laid out: the places in ``plan`` and ``numbers``, and the three sections."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost.kernels.compiling import compiled_inside

Array: TypeAlias = NDArray[Any]  # float32 or float64: the learners' own precision
Ints: TypeAlias = NDArray[np.int64]

# Places in plan.
LEARNERS, UNITS, POSITIONS, OUTPUTS, INPUTS, ACTIVATION, RULE, SCALED, AVERAGED = range(9)
DEPTH, HEIGHT, WIDTH, KERNEL, STRIDE, PADDING, ROWS_OUT, COLUMNS_OUT = range(9, 17)  # of images
PLAN_SIZE = 17

# Places in numbers, and in scale.
RATE, BETA1, BETA2, EPS, BEND = range(5)
UNIT, SUM, WEIGHT = range(3)

BLOCK = 32  # rows taken at a time, so that their hidden layer stays in the nearest cache


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
