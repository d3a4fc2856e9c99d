"""A model that learns from requests, with labels that come late; nothing is lost and nothing learned twice.

::

    learn(table) ──────────────────────┐                      ┌─▶ model
    remember(keys, rows) ─▶ they wait  ├─▶ journal (durable) ─┤
    label(keys, targets) ──────────────┘                      └─▶ now and then a checkpoint

Everything that is to be learned enters the journal first, in one transaction with whatever else the request changes,
and is learned from there, entry by entry. The model is therefore a function of the journal: after a crash, the newest
checkpoint and the entries after it make, bit for bit, the model that there would have been. What labels mean is settled
before they enter, so the clock plays no part in this.
"""

from streamboost.live.model import LiveModel
from streamboost.live.results import Labelled, Learned, LearnedBatch, NotTogether

__all__ = ["Labelled", "Learned", "LearnedBatch", "LiveModel", "NotTogether"]
