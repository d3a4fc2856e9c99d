"""What the weak learners explain of their targets, summed up as rows pass: see :mod:`streamboost.boosting.edges`."""

from __future__ import annotations

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled

Meters = tuple[float, FloatArray, FloatArray, FloatArray]  # recall; missed, size and recent_sums of the learners


@compiled
def count_edges(targets: FloatArray, h: FloatArray, weight: FloatArray, meters: Meters) -> None:
    """Count rows that share a step: what the learners should have said and what they said, both (n, N, m)."""
    recall, missed, size, recent = meters
    for i in range(targets.shape[1]):
        lack, whole = 0.0, 0.0
        for s in range(targets.shape[0]):
            short, long = 0.0, 0.0  # ‖target − h‖² and ‖target‖²
            for k in range(targets.shape[2]):
                short += (targets[s, i, k] - h[s, i, k]) * (targets[s, i, k] - h[s, i, k])
                long += targets[s, i, k] * targets[s, i, k]
            lack += weight[s] * short
            whole += weight[s] * long
        missed[i] += lack
        size[i] += whole
        recent[i, 0] = recall * recent[i, 0] + lack
        recent[i, 1] = recall * recent[i, 1] + whole
