"""What the weak learners explain of their targets, summed up as rows pass: see :mod:`streamboost.boosting.edges`."""

from typing import NamedTuple

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled


class Meters(NamedTuple):
    """Sums of squares of N learners, and what is left of the recent ones after a row."""

    decay: float
    residual_ss: FloatArray  # (N,), Σ w ‖target − h‖²
    target_ss: FloatArray  # (N,), Σ w ‖target‖²
    recent_sums: FloatArray  # (N, 2), the same two, faded


@compiled
def count_edges(targets: FloatArray, h: FloatArray, weight: FloatArray, meters: Meters) -> None:
    """Count rows that share a step: what the learners should have said and what they said, both (n, N, m)."""
    decay, recent = meters.decay, meters.recent_sums
    for i in range(targets.shape[1]):
        residual_ss, target_ss = 0.0, 0.0
        for s in range(targets.shape[0]):
            short, long = 0.0, 0.0  # ‖target − h‖² and ‖target‖²
            for k in range(targets.shape[2]):
                short += (targets[s, i, k] - h[s, i, k]) * (targets[s, i, k] - h[s, i, k])
                long += targets[s, i, k] * targets[s, i, k]
            residual_ss += weight[s] * short
            target_ss += weight[s] * long
        meters.residual_ss[i] += residual_ss
        meters.target_ss[i] += target_ss
        recent[i, 0] = decay * recent[i, 0] + residual_ss
        recent[i, 1] = decay * recent[i, 1] + target_ss
