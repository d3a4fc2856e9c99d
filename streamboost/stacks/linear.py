"""N linear learners in one weight array."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np

from streamboost._types import FloatArray
from streamboost.features.standardizer import Raw, Standardizer
from streamboost.kernels import linear as kernels
from streamboost.persistence.array_specs import ArraySpec
from streamboost.stacks.base import Stack


class LinearStack(Stack):
    """N ridge regressors, each with its own target, on the same rows.

    Recursive least squares is exact: with ``forget=1`` and ``standardize=False`` the weights after T rows
    are the ridge solution on those T rows. It costs d² a row, shared by all N learners; diagonal AdaGrad
    costs d N and is meant for wide inputs.

    Parameters
    ----------
    n_learners : int
    update : {"rls", "adagrad"}
    ridge : float
        The ridge penalty λ of ``"rls"``: ½λ‖w‖² beside ½Σ(error)².
    forget : float
        How much of the past is kept at each row, in (0, 1]; 0.999 is a memory of about 1,000 rows.
    rate : float
        The step of ``"adagrad"``.
    standardize : bool
        Bring the inputs to running mean 0 and standard deviation 1 first.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> stack = LinearStack(1, standardize=False)
    >>> stack.open(3, 1)
    >>> stack.learn(X, (X @ [1.0, -2.0, 0.5])[:, None, None], np.ones(200))
    >>> stack.weights[:, 0, 0].round(3).tolist()  # the intercept last; the ridge pulls a little towards 0
    [0.995, -1.99, 0.497, -0.001]
    """

    def __init__(
        self,
        n_learners: int = 10,
        *,
        update: Literal["rls", "adagrad"] = "rls",
        ridge: float = 1.0,
        forget: float = 1.0,
        rate: float = 0.1,
        standardize: bool = True,
    ) -> None:
        super().__init__(n_learners)
        kernels.check_linear_options(update, ridge, forget, rate)
        self.update, self.ridge, self.forget, self.rate = update, ridge, forget, rate
        self.standardize = standardize

    def _open(self, seed: int) -> None:
        p, q = self.n_features + 1, self.n_learners * self.n_outputs
        self.inputs = Standardizer(self.n_features) if self.standardize else Raw(self.n_features)
        self._weights = np.zeros((p, q))
        if self.update == "rls":
            self._covariance = kernels.prior_covariance(self.n_features, self.ridge)
        else:
            self._squares = np.zeros((p, q))

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be."""
        p, q = self.n_features + 1, self.n_learners * self.n_outputs
        shapes = {"_weights": (p, q), "_covariance": (p, p), "_squares": (p, q)}
        moments = {f"inputs.{name}": ArraySpec("f8", (p - 1,)) for name in ("count", "mean", "m2")}
        return moments | {name: ArraySpec("f8", shape) for name, shape in shapes.items()}

    @property
    def weights(self) -> FloatArray:
        """The weights (d + 1, N, m), the intercept last."""
        return self._weights.reshape(-1, self.n_learners, self.n_outputs)

    def predict(self, X: FloatArray) -> FloatArray:
        """What each learner says, (n, N, m)."""
        flat = kernels.apply(self.inputs.transform(X), self._weights, kernels.NO_SIGNS)  # (n, N m)
        return flat.reshape(len(X), self.n_learners, self.n_outputs)

    def for_prediction(self) -> LinearStack:
        """Leave out what is behind the weights: the covariance, or the squares of gradients."""
        twin = copy.copy(self)
        for name in ("_covariance", "_squares"):
            twin.__dict__.pop(name, None)
        return twin

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """One recursive step per row."""
        self.inputs.learn(X, weight)
        Z, W = self.inputs.transform(X), self._weights
        flat = np.ascontiguousarray(targets).reshape(len(X), W.shape[1])
        if self.update == "rls":
            kernels.recursive_least_squares(Z, flat, weight, self.forget, self.inputs.count, W, self._covariance)
        else:
            kernels.adagrad(Z, flat, weight, self.rate, self.forget, W, self._squares)

    def grow(self, k: int) -> None:
        """Append k learners with weights 0; recursive least squares shares the covariance with them."""
        self._pad((0, 0), (0, k), (0, 0))
        self.n_learners += k

    def add_outputs(self, k: int) -> None:
        """Append k outputs with weights 0."""
        self._pad((0, 0), (0, 0), (0, k))
        self.n_outputs += k

    splits = True

    def split_output(self) -> None:
        """Targets of the two outputs are each other's opposite, and so are the weights that follow them."""
        self._weights = np.stack([-self._weights, self._weights], axis=2).reshape(len(self._weights), -1)
        if self.update == "adagrad":
            self._squares = np.repeat(self._squares, 2, axis=1)
        self.n_outputs = 2

    def add_features(self, k: int) -> None:
        """Insert k inputs with weights 0 before the intercept."""
        before = [self.n_features] * k
        self._weights = np.insert(self._weights, before, 0.0, axis=0)
        if self.update == "rls":
            self._covariance = kernels.widen_covariance(self._covariance, k, self.ridge)
        else:
            self._squares = np.insert(self._squares, before, 0.0, axis=0)
        self.inputs.add_features(k)
        self.n_features += k

    def _pad(self, *width: tuple[int, int]) -> None:
        for name in ("_weights", "_squares"):
            if hasattr(self, name):
                array = getattr(self, name).reshape(-1, self.n_learners, self.n_outputs)
                setattr(self, name, np.pad(array, width).reshape(len(array), -1))
