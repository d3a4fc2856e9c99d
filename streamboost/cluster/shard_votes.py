"""From what several shards say to one answer: classes put in order, scores put together, losses kept.

The experts of the hedge are the shards, and the mean of their scores: shards that are equally good are better together
than any of them, and a hedge over the shards alone would follow whoever was lucky last.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamboost import recipes
from streamboost.arrays import FloatArray, IntArray
from streamboost.cluster.shard_worker import Said, coded, faded, loss_for
from streamboost.cluster.voting import learn_chunk
from streamboost.estimator_base import StreamEstimator
from streamboost.estimators import SGBClassifier
from streamboost.hedge import Hedge
from streamboost.labels import Labels
from streamboost.losses import Loss

Method = Literal["predict", "predict_proba", "decision_function"]
Readout = Literal["hedge", "mean"]
WAYS = {"predict": "_labels", "predict_proba": "_probabilities", "decision_function": "_decision"}
REMEMBERED = ("labels", "width", "hedge", "lost", "seen")


class ShardVotes:
    """What is known of the shards on the driver's side.

    Parameters
    ----------
    template : SGBRegressor or SGBClassifier
        What the shards began as.
    n_shards : int
    readout : {"hedge", "mean"}
    """

    def __init__(self, template: StreamEstimator, n_shards: int, readout: Readout) -> None:
        self.template, self.n_shards, self.readout = template, n_shards, readout
        self.is_classifier = isinstance(template, SGBClassifier)
        self.labels = Labels()
        self.width: int | None = None  # of numeric targets: how many there are
        self.hedge: Hedge | None = None
        self.lost, self.seen = np.zeros(n_shards), np.zeros(n_shards)

    def remember(self) -> dict[str, Any]:
        """What has to be kept beside the options."""
        return {name: copy.deepcopy(getattr(self, name)) for name in REMEMBERED}

    @property
    def loss(self) -> Loss:
        """The loss of all shards, for the classes known now."""
        return loss_for(self.template, len(self.labels) if self.is_classifier else self.width or 1)

    @property
    def weights(self) -> FloatArray:
        """The say of each shard, (K,)."""
        if self.readout == "mean" or self.hedge is None:
            return np.full(self.n_shards, 1.0 / self.n_shards)
        weights: FloatArray = self.hedge.voices[:-1] + self.hedge.voices[-1] / self.n_shards
        return weights

    @property
    def losses(self) -> FloatArray:
        """What each shard lost on the latest rows, (K,)."""
        losses: FloatArray = np.divide(self.lost, self.seen, out=np.full(self.n_shards, np.nan), where=self.seen > 0)
        return losses

    # Targets.

    def look(self, y: NDArray[Any]) -> Labels:
        """The labels known once these are; refuses targets that make no sense. Nothing changes."""
        if not len(y):
            raise ValueError("y is empty, expected at least one row. Skip empty chunks.")
        if not self.is_classifier:
            targets = self.template._encode_targets(y).values
            loss_for(self.template, targets.shape[1] if self.width is None else self.width).check_targets(targets)
            return self.labels
        new = self.labels.encode(y)[1]
        if new and len(self.labels) and recipes.is_one_versus_rest(self.template.loss):
            raise ValueError(
                f"y brings the class {new[0]!r}, but loss {self.template.loss!r} knows those of the first chunk, "
                f"{list(self.labels.numbers)!r}. Begin with a chunk that has them all, or use loss='log_loss'."
            )
        return self.labels.extended(sorted(new))

    def know(self, classes: Sequence[Any] | None) -> None:
        """Take in the classes of a shard, which may have met new ones by itself."""
        new = [label for label in classes or () if label not in self.labels.numbers]
        self.labels = self.labels.extended(sorted(new))

    def open(self, width: int) -> None:
        """Get ready to read out, now that the shape of targets is known."""
        if not self.is_classifier and self.width is None:
            self.width = width
        if self.hedge is None:
            self.hedge = Hedge([(expert, 0) for expert in range(self.n_shards + 1)])
            self.hedge.open(self.loss)

    # Scores.

    def aligned(self, said: Said) -> FloatArray:
        """The scores of a shard in the order of all classes; -inf for those it has not seen."""
        if said.classes is None:
            return said.scores
        if recipes.is_one_versus_rest(self.template.loss):
            if said.classes != list(self.labels.numbers):
                raise ValueError(
                    f"a shard knows the classes {said.classes!r}, and all of them {list(self.labels.numbers)!r}: "
                    f"loss {self.template.loss!r} needs them from the start. Pass classes= to learn_from."
                )
            return said.scores
        scores = np.full((len(said.scores), len(self.labels)), -np.inf)
        scores[:, [self.labels.numbers[label] for label in said.classes]] = said.scores
        return scores

    def read_out(self, said: Sequence[Said | None]) -> FloatArray:
        """One score (n, m) out of those of the shards that have learned something."""
        scores = np.stack([self.aligned(one) for one in said if one is not None], axis=1)  # (n, K, m)
        mean = scores.mean(axis=1)
        if self.readout == "mean" or self.hedge is None:
            return mean  # type: ignore[no-any-return]
        link, voices = self.loss.link, self.hedge.voices[[*(one is not None for one in said), True]]
        if not voices.sum() > 0:  # all trust is in shards that know nothing
            return mean  # type: ignore[no-any-return]
        experts = link.predict(_with(scores, mean))
        mixed = link.score(np.einsum("e,nem->nm", voices / voices.sum(), experts))
        unseen = np.isneginf(scores).all(axis=1)  # by all of them; a link gives finite numbers only
        return np.where(unseen, -np.inf, mixed)

    def own(self, first: Mapping[int, Said], shares: Sequence[IntArray], n: int) -> FloatArray:
        """What each shard said of its own rows while nobody else knew anything."""
        scores = np.zeros((n, self.loss.n_outputs))
        for shard, said in first.items():
            scores[shares[shard]] = self.aligned(said)
        return scores

    def count(self, said: Sequence[Said | None], y: NDArray[Any], weight: FloatArray) -> None:
        """Let the hedge hear what the shards said of rows before they learned them, and note what they lost."""
        if all(one is None for one in said):
            return
        assert self.hedge is not None
        loss, targets = self.loss, coded(self.template, y, self.labels if self.is_classifier else None)
        scores = np.zeros((len(y), self.n_shards, loss.n_outputs))  # a shard without a row says nothing: 0
        known = [shard for shard, one in enumerate(said) if one is not None]
        for shard, one in enumerate(said):
            if one is not None:
                scores[:, shard] = self.aligned(one)
                lost = loss.value(scores[:, shard], targets)
                self.lost[shard], self.seen[shard] = faded(self.lost[shard], self.seen[shard], lost, weight)
        if self.readout == "hedge":
            learn_chunk(self.hedge, _with(scores, scores[:, known].mean(axis=1)), targets, loss, weight)

    def answers(self, scores: FloatArray, method: Method) -> Any:
        """From scores to what is asked for, as the estimators have it."""
        reader: Any = copy.copy(self.template)
        reader.committee_, reader.labels_ = SimpleNamespace(loss=self.loss), self.labels
        return getattr(reader, WAYS[method])(scores) if self.is_classifier else reader._predictions(scores)


def _with(scores: FloatArray, mean: FloatArray) -> FloatArray:
    """The scores (n, K, m) of shards, and their mean as one more expert."""
    return np.concatenate([scores, mean[:, None]], axis=1)


def check_method(template: StreamEstimator, method: Method) -> None:
    """Refuse a question that shards of this kind have no answer to."""
    if method not in ("predict", "predict_proba", "decision_function"):
        raise ValueError(f"method is {method!r}, expected 'predict', 'predict_proba' or 'decision_function'.")
    if method != "predict" and not isinstance(template, SGBClassifier):
        raise ValueError(f"method is {method!r}, which is for classifiers. Leave it out.")
    if method == "predict_proba" and not hasattr(template, "predict_proba"):
        raise NotImplementedError(f"loss {template.loss!r} gives no probabilities. Use 'log_loss'.")
