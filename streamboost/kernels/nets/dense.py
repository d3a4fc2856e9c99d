"""Dense networks, forward and backward, all learners at once."""

import numpy as np

from streamboost.kernels.compiling import compiled_inside
from streamboost.kernels.nets.activations import activate, through
from streamboost.kernels.nets.layout import ACTIVATION, BLOCK, LEARNERS, OUTPUTS, UNITS, Array, Ints
from streamboost.kernels.nets.outputs import speak
from streamboost.kernels.nets.products import add_product, combine

SLICE = 16  # inputs taken at a time


@compiled_inside
def dense_forward(Z: Array, plan: Ints, parameters: Array, hidden: Array, out: Array) -> None:
    """Write the hidden layer (n, N H) and the output layer (n, N, m), in the learners' own units."""
    n, p = Z.shape
    K = plan[LEARNERS] * plan[UNITS]
    inputs, lanes = Z.reshape(n * p), hidden.reshape(n * K)
    lanes[:] = 0
    for start in range(0, n, BLOCK):
        for a in range(0, p, SLICE):
            count = min(SLICE, p - a)
            for s in range(start, min(start + BLOCK, n)):
                combine(lanes[s * K : (s + 1) * K], inputs, s * p + a, 1, parameters, a * K, K, count)
    activate(lanes, plan[ACTIVATION])
    speak(lanes, plan, parameters, out)


@compiled_inside
def add_dense_gradient(
    Z: Array, hidden: Array, error: Array, plan: Ints, parameters: Array, delta: Array, gradient: Array
) -> None:
    """Add to the gradient what rows bring whose loss has the derivative ``error`` (n, N, m) by the output layer."""
    n, p = Z.shape
    N, m, Q = plan[LEARNERS], plan[OUTPUTS], plan[UNITS]
    K, at_out = N * Q, p * N * Q
    inputs, lanes, a = Z.reshape(n * p), delta.reshape(n * K), hidden.reshape(n * K)
    spread = np.empty(K, Z.dtype)  # the error of each learner, at each of its hidden units
    lanes[:] = 0
    for s in range(n):
        for k in range(m):
            for i in range(N):
                e = error[s, i, k]
                gradient[at_out + m * K + i * m + k] += e
                spread[i * Q : (i + 1) * Q] = e
            row = at_out + k * K
            add_product(lanes[s * K : (s + 1) * K], spread, parameters[row : row + K])
            add_product(gradient[row : row + K], spread, a[s * K : (s + 1) * K])
    through(lanes, a, plan[ACTIVATION])
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        for r in range(p):
            combine(gradient[r * K : (r + 1) * K], inputs, start * p + r, p, lanes, start * K, K, count)
