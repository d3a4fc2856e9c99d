"""N small convolutional networks on the same images."""

from __future__ import annotations

import math

import numpy as np

from streamboost.errors import refused
from streamboost.kernels.nets import layout
from streamboost.stacks.neural import Activation, Array, NeuralStack, Precision, Update, whole_number


class ConvStack(NeuralStack):
    """N networks of one convolution: k × k kernels, activation, then linear to the outputs.

    A row is a flat image, channel after channel and line after line. The patches under the kernel are cut out once
    for all N learners.

    Parameters
    ----------
    shape : tuple of int
        Of the images: (height, width), or (channels, height, width).
    n_learners : int
    kernel, stride, padding : int
        The side of the kernel, how far it moves each time, and how many lines of 0 surround the image.
    channels : int
        How many kernels each learner has.
    activation : {"sigmoid", "tanh", "relu", "leaky_relu"}
    update : {"adam", "sgd", "momentum", "adagrad"} or an update rule
    rate : float, optional
        The size of steps; by default 1e-3 for "adam", else the rule's own.
    standardize : bool
        Bring each pixel to running mean 0 and standard deviation 1. By default values are taken as they are: bring
        bytes to [0, 1] first.
    dtype : {"float32", "float64"}
    scale_targets : bool
        Let each learner speak in a unit of the size of its targets; see :class:`~.neural.NeuralStack`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 36))
    >>> X[::2, 14:16] = 3.0  # a short line in every other image
    >>> target = np.tile([[[1.0]], [[-1.0]]], (1000, 1, 1))  # (n, N, m)
    >>> stack = ConvStack((6, 6), 1, kernel=3, stride=1, channels=2, rate=0.01)
    >>> stack.open(36, 1)
    >>> stack.learn(X, target, np.ones(2000))
    >>> bool((np.sign(stack.predict(X)) == target).mean() > 0.95)
    True
    """

    _learner_axis = 0

    def __init__(
        self,
        shape: tuple[int, ...],
        n_learners: int = 10,
        *,
        kernel: int = 5,
        stride: int = 2,
        channels: int = 5,
        padding: int = 0,
        activation: Activation = "sigmoid",
        update: Update = "adam",
        rate: float | None = None,
        standardize: bool = False,
        dtype: Precision = "float32",
        scale_targets: bool = True,
    ) -> None:
        rate = 1e-3 if rate is None and update == "adam" else rate
        super().__init__(n_learners, activation, update, rate, standardize, dtype, scale_targets)
        if len(shape) not in (2, 3):
            raise refused("shape", shape, "(height, width) or (channels, height, width).")
        self.shape = tuple(whole_number("a side of shape", side, 1) for side in shape)
        self.kernel = whole_number("kernel", kernel, 1)
        self.stride = whole_number("stride", stride, 1)
        self.channels = whole_number("channels", channels, 1)
        self.padding = whole_number("padding", padding, 0)
        if min(self.shape[-2:]) + 2 * self.padding < self.kernel:
            told = f"kernel is {kernel!r}, but an image of {self.shape[-2:]} with padding {padding!r} is smaller."
            raise ValueError(f"{told} Take a smaller kernel, or more padding.")

    def open(self, n_features: int, n_outputs: int, seed: int = 0) -> None:
        """Make room for images of ``n_features`` pixels, which must be as many as the shape has."""
        if n_features != np.prod(self.shape):
            expected = f"{np.prod(self.shape)}: images of shape {self.shape} have so many pixels"
            way_out = "Correct the shape, or leave out the columns that are no pixels."
            raise refused("n_features", n_features, f"{expected}. {way_out}")
        super().open(n_features, n_outputs, seed)

    @property
    def out_shape(self) -> tuple[int, int]:
        """How many positions the kernel takes: rows and columns."""
        rows, columns = ((side + 2 * self.padding - self.kernel) // self.stride + 1 for side in self.shape[-2:])
        return rows, columns

    @property
    def _depth(self) -> int:
        return self.shape[0] if len(self.shape) == 3 else 1

    @property
    def _layer(self) -> tuple[int, int, int]:
        return self.channels, math.prod(self.out_shape), self._depth * self.kernel**2 + 1

    def _tell_kernels(self) -> None:
        super()._tell_kernels()
        images = (self._depth, *self.shape[-2:], self.kernel, self.stride, self.padding, *self.out_shape)
        self._plan[layout.DEPTH : layout.COLUMNS_OUT + 1] = images

    def add_features(self, k: int) -> None:
        """Refuse: an image has the shape it was declared with."""
        told = f"ConvStack has images of the fixed shape {self.shape} and cannot take {k} more columns."
        raise TypeError(f"{told} Leave them out, or use another learner.")

    @property
    def W1(self) -> Array:  # noqa: N802 (the letter of the formula)
        """The kernels (N, channels, channels of the image, k, k): a view, to be written into as well."""
        hidden = self._sections(self.parameters)["hidden"]
        stride = hidden.itemsize
        shape = (self.n_learners, self.channels, self._depth, self.kernel, self.kernel)
        strides = (*hidden.strides[:2], stride * self.kernel**2, stride * self.kernel, stride)
        return np.lib.stride_tricks.as_strided(hidden, shape, strides)

    @property
    def b1(self) -> Array:
        """The intercepts of the kernels (N, channels): a view, to be written into as well."""
        return self._sections(self.parameters)["hidden"][..., -1]

    @property
    def W2(self) -> Array:  # noqa: N802 (the letter of the formula)
        """The output layer (N, m, channels, rows, columns), in the learners' units: a view, to be written into too."""
        shape = (self.n_outputs, self.n_learners, self.channels, *self.out_shape)
        return self._sections(self.parameters)["out"].reshape(shape).swapaxes(0, 1)
