"""What the paper promises, beside what a run delivers: bounds, measured regret, and advice from the edges."""

from streamboost.theory.bounds import answer_bound, contraction, nonsmooth_bound, residual_bound, smooth_bound
from streamboost.theory.regret import (
    Curve,
    Regret,
    RegretMeter,
    comparator_scores,
    diagnose,
    judge,
    measure_regret,
    prefix_scores,
)

__all__ = ["Curve", "Regret", "RegretMeter", "answer_bound", "comparator_scores", "contraction", "diagnose", "judge",
           "measure_regret", "nonsmooth_bound", "prefix_scores", "residual_bound", "smooth_bound"]  # fmt: skip
