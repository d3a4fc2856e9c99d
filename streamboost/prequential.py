"""The prequential loop, test then train, under the name people use; see :mod:`streamboost.evaluation.prequential`."""

from streamboost.evaluation.prequential import History, Report, prequential, run

__all__ = ["History", "Report", "prequential", "run"]
