"""Rows on their way from ``prepare`` to ``learn_prepared``."""

from __future__ import annotations

from typing import NamedTuple

from streamboost._types import FloatArray
from streamboost.boosting.committee import Committee
from streamboost.features.encoder import Encoder
from streamboost.features.labels import Labels
from streamboost.features.sparse_rows import SparseRows


class Targets(NamedTuple):
    """Encoded targets; of a classifier also the labels that know them."""

    y: FloatArray  # (n, k): numbers, or the codes of classes
    labels: Labels | None = None
    n_declared: int = 0  # classes known before the first of these rows


class Prepared(NamedTuple):
    """Rows that were checked and encoded, ready to be learned: what :meth:`StreamEstimator.prepare` returns."""

    X: FloatArray | SparseRows  # (n, d)
    targets: Targets
    weight: FloatArray  # (n,)
    committee: Committee  # that will learn them: the model's, or for first rows a new one
    encoder: Encoder  # that knows them
    against: tuple[Encoder | None, Labels | None]  # what the model has to know by then
