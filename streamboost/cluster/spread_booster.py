"""An estimator or a booster whose weak learners live on workers, with checkpoints: what a run takes."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from streamboost import recipes, snapshots
from streamboost.boosting import Booster
from streamboost.cluster import beginnings
from streamboost.cluster.crew import Cut, Engine
from streamboost.cluster.spread import KIND, SpreadStack
from streamboost.estimator_base import StreamEstimator
from streamboost.estimators import SGBRegressor

TEACHING = frozenset({"fit", "learn", "learn_many", "learn_one", "partial_fit"})


class SpreadBooster:
    """A model that is everything the given one is, with its learners on workers: see :class:`.spread.SpreadStack`.

    Beside the methods below it has all methods and attributes of the model. An estimator of trees keeps one booster
    with the longest memory, as it does for any stack given as its ``learner``. The read-out ``"hedge"`` is reckoned row
    by row on this side; where that takes longer than the learners do, choose ``readout="last"``. Copying one that has
    learned rows (``copy.deepcopy``) brings a plain model home. Another ``fit`` takes over the workers.

    Parameters
    ----------
    model : SGBRegressor, SGBClassifier or Booster, optional
        What to spread, not fitted yet; it stays as it is. Choose ``semantics="minibatch"``, or a number of rows.
        Left out: ``SGBRegressor(learner="mlp", semantics="minibatch")``.
    workers, engine, address, directory, resources, **named
        As for :class:`.spread.SpreadStack`.

    Attributes
    ----------
    model : SGBRegressor, SGBClassifier or Booster
        The model at work, on this side.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from streamboost import SGBRegressor
    >>> X, y = make_friedman1(3000, random_state=0)
    >>> template = SGBRegressor(learner="mlp", semantics=10, random_state=0)
    >>> with SpreadBooster(template, workers=2, engine="local") as spread:
    ...     before = spread.learn(X, y)
    ...     home = spread.gather()
    >>> bool(abs(before - template.learn(X, y)).max() < 1e-12), type(home.booster_.stack).__name__
    (True, 'TwoLayerStack')
    """

    def __init__(
        self,
        model: Any = None,
        *,
        workers: int = 2,
        engine: Engine = "auto",
        address: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        resources: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        if model is None:
            model = SGBRegressor(learner="mlp", semantics="minibatch")
        if not isinstance(model, (StreamEstimator, Booster)) or isinstance(model, type):
            raise TypeError(f"model is {model!r}, expected an SGBRegressor, an SGBClassifier or a Booster.")
        if hasattr(model, "committee_") or getattr(model, "is_open", False):
            raise ValueError("model has learned rows already, expected one that has not: it is opened on the workers.")
        stack = model.stack if isinstance(model, Booster) else recipes.make_stack(model._options(None))
        if not isinstance(stack, SpreadStack):
            stack = SpreadStack(
                stack,
                workers,
                engine=engine,
                address=address,
                directory=directory,
                resources=resources,
                **named,
            )
        self._plain: Any = model
        self._spread = stack.for_one()
        given = {
            name: stack.stack for name in ("stack", "learner") if isinstance(getattr(model, name, None), SpreadStack)
        }
        self._beginning = beginnings.describe(model, **given)
        self.model: Any = self._fresh()

    def _fresh(self) -> Any:
        """The model before its first row, with a stack that is to be spread."""
        if isinstance(self._plain, Booster):
            model = copy.deepcopy(self._plain)
            model.stack = copy.deepcopy(self._spread)
            return model
        return type(self._plain)(**{**self._plain.get_params(deep=False), "learner": self._spread})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "model" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self.model, name)
        return self._guarded(found) if name in TEACHING else found

    def _guarded(self, teach: Callable[..., Any]) -> Callable[..., Any]:
        """The same, but a chunk that was learned in part is not passed over in silence."""

        @functools.wraps(teach)
        def taught(*args: Any, **named: Any) -> Any:
            before = self.stack_
            n_steps = None if before is None else before.n_steps
            try:
                answer = teach(*args, **named)
            except BaseException as error:
                stack = self.stack_
                if stack is not None and (stack is not before or stack.n_steps != n_steps):
                    stack.tear(error)
                raise
            return self if answer is self.model else answer

        return taught

    def __sklearn_tags__(self) -> Any:
        return self.model.__sklearn_tags__()

    @property
    def _booster(self) -> Booster | None:
        """The booster whose stack is spread, once there is one."""
        if isinstance(self.model, Booster):
            return self.model
        return self.model.committee_.boosters[0] if hasattr(self.model, "committee_") else None

    @property
    def stack_(self) -> SpreadStack | None:
        """The learners on workers; None before the first row."""
        booster = self._booster
        if booster is None or not booster.is_open:
            return None
        assert isinstance(booster.stack, SpreadStack)
        return booster.stack

    # Coming home.

    def gather(self) -> Any:
        """The plain model, all learners brought home: it goes on as this one does, in one process."""
        stack = self.stack_
        if stack is None:
            return copy.deepcopy(self._plain)
        home = copy.deepcopy(self.model, {id(stack): stack.gather(), id(self._spread): None})
        if not isinstance(home, Booster):
            home.learner = copy.deepcopy(self._plain.learner)
        return home

    def save(self, path: str | os.PathLike[str]) -> None:
        """Bring all learners home and write the plain model to a file that :func:`streamboost.load` reads."""
        snapshots.save(self.gather(), path)

    def detach(self) -> Cut:
        """What a checkpoint keeps: the cut its workers made, and the model without its learners."""
        stack = self.stack_
        if stack is None:
            return self._spread.detach()
        cut = stack.detach()
        shell = copy.deepcopy(self.model, {id(stack): None, id(self._spread): None})
        return replace(cut, memory={"stack": cut.memory, "model": shell, "beginning": self._beginning})

    def confirm(self, cut: Cut) -> None:
        """Hear that what was detached is kept by a checkpoint on disk: of these cuts the last two stay."""
        stack = self.stack_
        if stack is not None:
            stack.confirm(cut)

    def attach(self, cut: Cut) -> None:
        """Become what was detached; workers are started if there are none.

        Raises
        ------
        ValueError
            If it is no cut of this model, for another number of workers or of another directory.
        """
        memory = getattr(cut, "memory", None)
        if (
            memory is None or cut.kind != KIND
        ):  # nothing had been learned, or it is no cut of this kind, which the stack will say
            self._spread.attach(cut)
            self.model = self._fresh()
            return
        beginnings.check_same(memory["beginning"], self._beginning)
        stack = self.stack_ or copy.deepcopy(self._spread)
        has_workers = self._spread.is_started
        try:
            stack.attach(replace(cut, memory=memory["stack"]))
        except Exception:
            if not has_workers:  # let go of the directory that a crew for nothing was started in
                stack.close()
            raise
        self.model = copy.deepcopy(memory["model"])
        if not isinstance(self.model, Booster):
            self.model.learner = self._spread
        booster = self._booster
        assert booster is not None
        booster.stack = stack

    def begin_anew(self, before: Any) -> None:
        """Begin where a run ended before it had learned anything; ``before`` is what its checkpoint holds."""
        if self.stack_ is None and isinstance(before, Cut) and before.kind == KIND and not before.number:
            self.attach(before)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.stack_ is not None:
            return self.gather()
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._plain, twin._spread = copy.deepcopy(self._plain, memo), copy.deepcopy(self._spread, memo).for_one()
        twin.model = twin._fresh()
        return twin

    def metrics(self) -> list[dict[str, Any]]:
        """How each worker is; nothing before the first row."""
        stack = self.stack_
        return [] if stack is None else stack.crew.metrics()

    def close(self) -> None:
        """End the workers."""
        self._spread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
