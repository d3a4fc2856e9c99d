"""The types every package speaks of.

Letters used everywhere: ``n`` rows in a chunk, ``d`` features, ``N`` weak learners, ``m`` outputs.
"""

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
Task: TypeAlias = Literal["regression", "classification"]
