"""Activations of hidden layers, and the way back through them."""

import math
from typing import Any

import numpy as np

from streamboost.kernels.compiling import compiled_inside
from streamboost.kernels.nets.layout import Array

SIGMOID, TANH, RELU, LEAKY_RELU = range(4)
LEAK = 0.01  # the slope of leaky ReLU below 0

# tanh as x P(x²) / Q(x²) to the precision of float32, beyond CUT it is ±1: vectorises, as exp does not.
CUT = np.float32(7.90531110763549805)
P1, P3, P5 = np.float32(4.89352455891786e-03), np.float32(6.37261928875436e-04), np.float32(1.48572235717979e-05)
P7, P9, P11 = np.float32(5.12229709037114e-08), np.float32(-8.60467152213735e-11), np.float32(2.00018790482477e-13)
P13 = np.float32(-2.76076847742355e-16)
Q0, Q2, Q4 = np.float32(4.89352518554385e-03), np.float32(2.26843463243900e-03), np.float32(1.18534705686654e-04)
Q6 = np.float32(1.19825839466702e-06)
HALF = np.float32(0.5)


@compiled_inside
def activate(x: Array, activation: int) -> None:
    """Put the activation of x in its place."""
    if activation == SIGMOID:
        _sigmoid(x)
    elif activation == TANH:
        _tanh(x)
    else:
        slope = x.dtype.type(0.0 if activation == RELU else LEAK)
        for j in range(x.shape[0]):
            x[j] = x[j] if x[j] > 0 else x[j] * slope


@compiled_inside
def through(delta: Array, a: Array, activation: int) -> None:
    """Multiply by the derivative of the activation, told by its value."""
    one = a.dtype.type(1)
    if activation == SIGMOID:
        for j in range(a.shape[0]):
            delta[j] *= a[j] * (one - a[j])
    elif activation == TANH:
        for j in range(a.shape[0]):
            delta[j] *= one - a[j] * a[j]
    else:
        slope = a.dtype.type(0.0 if activation == RELU else LEAK)
        for j in range(a.shape[0]):
            delta[j] = delta[j] if a[j] > 0 else delta[j] * slope


@compiled_inside
def _rational(x: Any) -> Any:
    """Tanh to the precision of float32."""
    x = min(max(x, -CUT), CUT)
    y = x * x
    top = ((((((P13 * y + P11) * y + P9) * y + P7) * y + P5) * y + P3) * y + P1) * x
    return top / (((Q6 * y + Q4) * y + Q2) * y + Q0)


@compiled_inside
def _sigmoid(x: Array) -> None:
    if x.itemsize == 4:
        for j in range(x.shape[0]):
            x[j] = HALF * _rational(HALF * np.float32(x[j])) + HALF
    else:
        for j in range(x.shape[0]):
            x[j] = 0.5 * math.tanh(0.5 * x[j]) + 0.5


@compiled_inside
def _tanh(x: Array) -> None:
    if x.itemsize == 4:
        for j in range(x.shape[0]):
            x[j] = _rational(np.float32(x[j]))
    else:
        for j in range(x.shape[0]):
            x[j] = math.tanh(x[j])
