"""How N small networks answer and learn as one: Numba functions on plain arrays.

A network has one hidden layer: W2 a(W1 z + b1) + b2. The parameters of all N lie in one flat array, in three
sections; the learner is never the innermost index that matters to a loop, so that loops run over all learners at once:

* hidden: dense (d + 1, N, H), the intercepts last, or convolution (N, C, inputs + 1), the intercept last;
* out: (m, N, Q), where Q is H, or C times the number of positions;
* intercepts of out: (N, m).

Gradients, what an update rule remembers, and averages are flat arrays of the same shape. A network speaks in its own
``unit``, a power of two: what it says is the unit times what comes out of the last layer.

``plan`` (int64) tells the shapes and choices, ``numbers`` (float64) the constants, as ``layout`` says.
``steps`` (2, N) counts each learner's steps and those its average is made of; ``scale`` (3, N) holds its unit, and the
discounted sums of weight * mean square of its targets and of weight.

Every sum is added up in an order that depends neither on N nor on how many rows come together: a learner says the same,
to the last bit, whatever company it keeps.
"""

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.nets import layout
from streamboost.kernels.nets.conv import add_conv_gradient, conv_forward, cut_patches
from streamboost.kernels.nets.dense import add_dense_gradient, dense_forward
from streamboost.kernels.nets.layout import Array, Ints, Nets
from streamboost.kernels.nets.outputs import follow_targets, in_units, set_errors, total_weight
from streamboost.kernels.nets.steps import take_step


@compiled_inside
def make_room(plan: Ints, size: int, like: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Room for so many rows: patches, where there are any, the hidden layer and its errors, outputs and theirs."""
    N, m, is_conv = plan[layout.LEARNERS], plan[layout.OUTPUTS], plan[layout.KERNEL] > 0
    width = N * plan[layout.UNITS] * plan[layout.POSITIONS]
    patches = np.empty((size, (plan[layout.INPUTS] - 1) * plan[layout.POSITIONS] if is_conv else 0), like.dtype)
    hidden, delta = np.empty((size, width), like.dtype), np.empty((1 if is_conv else size, width), like.dtype)
    return patches, hidden, delta, np.empty((size, N, m), like.dtype), np.empty((size, N, m), like.dtype)


@compiled_inside
def forward(Z: Array, patches: Array, plan: Ints, parameters: Array, hidden: Array, out: Array) -> None:
    """Both layers, of either kind of network."""
    if plan[layout.KERNEL] > 0:
        cut_patches(Z, plan, patches)
        conv_forward(patches, plan, parameters, hidden, out)
    else:
        dense_forward(Z, plan, parameters, hidden, out)


@compiled_inside
def backward(
    Z: Array, patches: Array, hidden: Array, error: Array, plan: Ints, parameters: Array, delta: Array, gradient: Array
) -> None:
    """Add to the gradient what rows bring whose loss has the derivative ``error`` (n, N, m) by the output layer."""
    if plan[layout.KERNEL] > 0:
        one_learner = delta.reshape(delta.size)[: plan[layout.UNITS] * plan[layout.POSITIONS]]
        add_conv_gradient(patches, hidden, error, plan, parameters, one_learner, gradient)
    else:
        add_dense_gradient(Z, hidden, error, plan, parameters, delta[: Z.shape[0]], gradient)


@compiled
def predict(Z: Array, plan: Ints, parameters: Array, scale: FloatArray, said: FloatArray) -> None:
    """Write what each learner says (n, N, m) of the inputs (n, d + 1), of which the last is 1."""
    patches, hidden, _, out, _ = make_room(plan, min(Z.shape[0], layout.BLOCK), Z)
    for start in range(0, Z.shape[0], layout.BLOCK):
        n = min(layout.BLOCK, Z.shape[0] - start)
        forward(Z[start : start + n], patches[:n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, said[start : start + n])


@compiled
def learn(Z: Array, targets: FloatArray, weight: FloatArray, size: int, is_mean: bool, nets: Nets) -> int:
    """One step for every ``size`` rows; return the learner whose step had to be refused, or -1.

    ``is_mean``: a step follows the weighted mean of the gradients; else it follows their weighted sum.
    """
    plan, parameters, scale = nets.plan, nets.parameters, nets.scale
    size = max(min(size, Z.shape[0]), 1)
    patches, hidden, delta, out, error = make_room(plan, min(size, layout.BLOCK), Z)
    gradient = np.empty_like(parameters)
    for start in range(0, Z.shape[0], size):
        stop = min(start + size, Z.shape[0])
        wanted, w = targets[start:stop], weight[start:stop]
        total = total_weight(w)
        if total <= 0.0:
            continue
        bad = follow_targets(wanted, w, nets)
        if bad >= 0:
            return bad
        gradient[:] = 0
        for low in range(start, stop, layout.BLOCK):
            high = min(low + layout.BLOCK, stop)
            n = high - low
            forward(Z[low:high], patches[:n], plan, parameters, hidden[:n], out[:n])
            set_errors(out[:n], targets[low:high], weight[low:high], total if is_mean else 1.0, scale, error[:n])
            backward(Z[low:high], patches[:n], hidden[:n], error[:n], plan, parameters, delta, gradient)
        bad = take_step(nets, gradient)
        if bad >= 0:
            return bad
    return -1
