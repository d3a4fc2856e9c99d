"""A model that learns from requests, with labels that come late; nothing is lost and nothing learned twice.

::

    learn(table) ──────────────────────┐                      ┌─▶ model
    remember(keys, rows) ─▶ they wait  ├─▶ journal (durable) ─┤
    label(keys, targets) ──────────────┘                      └─▶ now and then a checkpoint

Rows are prepared, written down in one transaction with whatever else the request changes, and then learned. The journal
holds the same rows in the same order, so the model is a function of it: after a crash, the newest checkpoint and the
entries after it make, bit for bit, the model that there would have been. What labels mean is decided before they are
written down, so the clock plays no part in this.
"""

from streamboost.live.frozen import FrozenModel
from streamboost.live.model import LiveModel
from streamboost.live.results import IdTaken, Labelled, Learned, LearnedBatch, NotTogether

__all__ = ["FrozenModel", "IdTaken", "Labelled", "Learned", "LearnedBatch", "LiveModel", "NotTogether"]
