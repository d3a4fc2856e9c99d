"""How N small networks answer and learn as one: Numba functions on plain arrays.

A network has one hidden layer: W2 a(W1 z + b1) + b2. The parameters of all N lie in one flat array, in three
sections; the learner is never the innermost index that matters to a loop, so that loops run over all learners at once:

* hidden: dense (d + 1, N, H), the intercepts last, or convolution (N, C, inputs + 1), the intercept last;
* out: (m, N, Q), where Q is H, or C times the number of positions;
* intercepts of out: (N, m).

Gradients, what an update rule remembers, and averages are flat arrays of the same shape. A network speaks in its own
``unit``, a power of two: what it says is the unit times what comes out of the last layer.

``plan`` (int64) tells the shapes and choices, ``numbers`` (float64) the constants; where in them is told below.
``steps`` (2, N) counts each learner's steps and those its average is made of; ``scale`` (3, N) holds its unit, and the
discounted sums of weight * mean square of its targets and of weight.

Every sum is added up in an order that depends neither on N nor on how many rows come together: a learner says the same,
to the last bit, whatever company it keeps.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import FloatArray
from streamboost.compiled import compiled, compiled_inside, compiled_loosely

Array: TypeAlias = NDArray[Any]  # float32 or float64: the learners' own precision
Ints: TypeAlias = NDArray[np.int64]

# Places in plan.
LEARNERS, UNITS, POSITIONS, OUTPUTS, INPUTS, ACTIVATION, RULE, SCALED, AVERAGED = range(9)
DEPTH, HEIGHT, WIDTH, KERNEL, STRIDE, PADDING, ROWS_OUT, COLUMNS_OUT = range(9, 17)  # of images
PLAN_SIZE = 17

# Places in numbers.
RATE, BETA1, BETA2, EPS, BEND = range(5)

SIGMOID, TANH, RELU, LEAKY_RELU = range(4)
PLAIN, MOMENTUM, ADAGRAD, ADAM = range(4)
UNIT, SUM, WEIGHT = range(3)

LEAK = 0.01  # the slope of leaky ReLU below 0
MEMORY = 1000.0  # rows over which the size of the targets is forgotten
FORGOTTEN = 1.0 - 1.0 / MEMORY
FAR = 1024.0  # a unit that changes by more begins its moments anew: their fourth power would leave float32
BLOCK = 32  # rows taken at a time, so that their hidden layer stays in the nearest cache
SLICE = 16  # inputs taken at a time

# tanh as x P(x²) / Q(x²) to the precision of float32, beyond CUT it is ±1: vectorises, as exp does not.
CUT = np.float32(7.90531110763549805)
P1, P3, P5 = np.float32(4.89352455891786e-03), np.float32(6.37261928875436e-04), np.float32(1.48572235717979e-05)
P7, P9, P11 = np.float32(5.12229709037114e-08), np.float32(-8.60467152213735e-11), np.float32(2.00018790482477e-13)
P13 = np.float32(-2.76076847742355e-16)
Q0, Q2, Q4 = np.float32(4.89352518554385e-03), np.float32(2.26843463243900e-03), np.float32(1.18534705686654e-04)
Q6 = np.float32(1.19825839466702e-06)
HALF = np.float32(0.5)


# Dense networks.


@compiled
def dense_predict(Z: Array, plan: Ints, parameters: Array, scale: FloatArray, said: FloatArray) -> None:
    """Write what each learner says (n, N, m) of the inputs (n, d + 1), of which the last is 1."""
    N, m, Q = plan[LEARNERS], plan[OUTPUTS], plan[UNITS]
    size = min(Z.shape[0], BLOCK)
    hidden, out = np.empty((size, N * Q), Z.dtype), np.empty((size, N, m), Z.dtype)
    for start in range(0, Z.shape[0], BLOCK):
        n = min(BLOCK, Z.shape[0] - start)
        dense_forward(Z[start : start + n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, said[start : start + n])


@compiled
def dense_learn(
    Z: Array,
    targets: FloatArray,
    weight: FloatArray,
    size: int,
    is_mean: bool,
    plan: Ints,
    numbers: FloatArray,
    parameters: Array,
    first: Array,
    second: Array,
    average: Array,
    steps: Ints,
    scale: FloatArray,
) -> int:
    """One step for every ``size`` rows; return the learner whose step had to be refused, or -1.

    ``is_mean``: a step follows the weighted mean of the gradients; else it follows their weighted sum.
    """
    N, m, Q = plan[LEARNERS], plan[OUTPUTS], plan[UNITS]
    size = max(min(size, Z.shape[0]), 1)
    room = min(size, BLOCK)
    hidden, delta = np.empty((room, N * Q), Z.dtype), np.empty((room, N * Q), Z.dtype)
    out, error = np.empty((room, N, m), Z.dtype), np.empty((room, N, m), Z.dtype)
    gradient = np.empty_like(parameters)
    for start in range(0, Z.shape[0], size):
        stop = min(start + size, Z.shape[0])
        wanted, w = targets[start:stop], weight[start:stop]
        total = _total(w)
        if total <= 0.0:
            continue
        bad = follow_targets(wanted, w, plan, parameters, first, second, average, steps, scale)
        if bad >= 0:
            return bad
        gradient[:] = 0
        for low in range(start, stop, BLOCK):
            high = min(low + BLOCK, stop)
            n = high - low
            dense_forward(Z[low:high], plan, parameters, hidden[:n], out[:n])
            set_errors(out[:n], targets[low:high], weight[low:high], total if is_mean else 1.0, scale, error[:n])
            add_dense_gradient(Z[low:high], hidden[:n], error[:n], plan, parameters, delta[:n], gradient)
        bad = take_step(plan, numbers, parameters, gradient, first, second, average, steps)
        if bad >= 0:
            return bad
    return -1


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
                _combine(lanes[s * K : (s + 1) * K], inputs, s * p + a, 1, parameters, a * K, K, count)
    activate(lanes, plan[ACTIVATION])
    _speak(lanes, plan, parameters, out)


@compiled_inside
def dense_backward(
    Z: Array, hidden: Array, error: Array, plan: Ints, parameters: Array, delta: Array, gradient: Array
) -> None:
    """Write the gradient of a loss that has the derivative ``error`` (n, N, m) by the output layer."""
    gradient[:] = 0
    add_dense_gradient(Z, hidden, error, plan, parameters, delta, gradient)


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
            _add_product(lanes[s * K : (s + 1) * K], spread, parameters[row : row + K])
            _add_product(gradient[row : row + K], spread, a[s * K : (s + 1) * K])
    _through(lanes, a, plan[ACTIVATION])
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        for r in range(p):
            _combine(gradient[r * K : (r + 1) * K], inputs, start * p + r, p, lanes, start * K, K, count)


# Convolutions.


@compiled
def conv_predict(Z: Array, plan: Ints, parameters: Array, scale: FloatArray, said: FloatArray) -> None:
    """Write what each learner says (n, N, m) of flat images (n, d + 1), of which the last is 1."""
    patches, hidden, out, _ = _conv_room(plan, min(Z.shape[0], BLOCK), Z)
    for start in range(0, Z.shape[0], BLOCK):
        n = min(BLOCK, Z.shape[0] - start)
        cut_patches(Z[start : start + n], plan, patches[:n])
        conv_forward(patches[:n], plan, parameters, hidden[:n], out[:n])
        in_units(out[:n], scale, said[start : start + n])


@compiled
def conv_learn(
    Z: Array,
    targets: FloatArray,
    weight: FloatArray,
    size: int,
    is_mean: bool,
    plan: Ints,
    numbers: FloatArray,
    parameters: Array,
    first: Array,
    second: Array,
    average: Array,
    steps: Ints,
    scale: FloatArray,
) -> int:
    """:func:`dense_learn` for convolutions."""
    size = max(min(size, Z.shape[0]), 1)
    patches, hidden, out, error = _conv_room(plan, min(size, BLOCK), Z)
    delta, gradient = np.empty(plan[UNITS] * plan[POSITIONS], Z.dtype), np.empty_like(parameters)
    for start in range(0, Z.shape[0], size):
        stop = min(start + size, Z.shape[0])
        wanted, w = targets[start:stop], weight[start:stop]
        total = _total(w)
        if total <= 0.0:
            continue
        bad = follow_targets(wanted, w, plan, parameters, first, second, average, steps, scale)
        if bad >= 0:
            return bad
        gradient[:] = 0
        for low in range(start, stop, BLOCK):
            high = min(low + BLOCK, stop)
            n = high - low
            cut_patches(Z[low:high], plan, patches[:n])
            conv_forward(patches[:n], plan, parameters, hidden[:n], out[:n])
            set_errors(out[:n], targets[low:high], weight[low:high], total if is_mean else 1.0, scale, error[:n])
            add_conv_gradient(patches[:n], hidden[:n], error[:n], plan, parameters, delta, gradient)
        bad = take_step(plan, numbers, parameters, gradient, first, second, average, steps)
        if bad >= 0:
            return bad
    return -1


@compiled_inside
def _conv_room(plan: Ints, size: int, like: Array) -> tuple[Array, Array, Array, Array]:
    """Room for the patches, the hidden layer, the output layer and its errors of so many rows."""
    N, m, P = plan[LEARNERS], plan[OUTPUTS], plan[POSITIONS]
    shape = (size, N, m)
    patches = np.empty((size, (plan[INPUTS] - 1) * P), like.dtype)
    hidden = np.empty((size, N * plan[UNITS] * P), like.dtype)
    return patches, hidden, np.empty(shape, like.dtype), np.empty(shape, like.dtype)


@compiled_inside
def cut_patches(Z: Array, plan: Ints, patches: Array) -> None:
    """Write what stands at each place of the kernel, for every position: (n, inputs * positions)."""
    k, stride, padding = plan[KERNEL], plan[STRIDE], plan[PADDING]
    height, width, columns = plan[HEIGHT], plan[WIDTH], plan[COLUMNS_OUT]
    for s in range(Z.shape[0]):
        image, cut = Z[s], patches[s]
        at = np.uint64(0)  # unsigned: no index could be meant from the end
        for c in range(plan[DEPTH]):
            for u in range(k):
                for v in range(k):
                    for row in range(plan[ROWS_OUT]):
                        y = row * stride + u - padding
                        start = (c * height + y) * width
                        for column in range(columns):
                            x = column * stride + v - padding
                            if padding == 0 or (y >= 0 and y < height and x >= 0 and x < width):
                                cut[at] = image[np.uint64(start + x)]
                            else:
                                cut[at] = 0
                            at += np.uint64(1)


@compiled_inside
def conv_forward(patches: Array, plan: Ints, parameters: Array, hidden: Array, out: Array) -> None:
    """Write the hidden layer (n, N C positions) and the output layer (n, N, m), in the learners' own units."""
    n = patches.shape[0]
    p, P, K = plan[INPUTS], plan[POSITIONS], plan[LEARNERS] * plan[UNITS]
    for s in range(n):
        for k in range(K):
            lanes = hidden[s, k * P : (k + 1) * P]
            lanes[:] = parameters[k * p + p - 1]
            _combine(lanes, parameters, k * p, 1, patches[s], 0, P, p - 1)
        activate(hidden[s], plan[ACTIVATION])
    _speak(hidden.reshape(hidden.size), plan, parameters, out)


@compiled_inside
def conv_backward(
    patches: Array, hidden: Array, error: Array, plan: Ints, parameters: Array, delta: Array, gradient: Array
) -> None:
    """Write the gradient of a loss that has the derivative ``error`` (n, N, m) by the output layer."""
    gradient[:] = 0
    add_conv_gradient(patches, hidden, error, plan, parameters, delta, gradient)


@compiled_inside
def add_conv_gradient(
    patches: Array, hidden: Array, error: Array, plan: Ints, parameters: Array, delta: Array, gradient: Array
) -> None:
    """Add to the gradient, as :func:`add_dense_gradient` does; ``delta`` is room for one learner's hidden layer."""
    n = patches.shape[0]
    N, m, C, p, P = plan[LEARNERS], plan[OUTPUTS], plan[UNITS], plan[INPUTS], plan[POSITIONS]
    Q, at_out = C * P, p * N * C
    at_intercepts = at_out + N * m * Q
    lanes, errors = hidden.reshape(hidden.size), error.reshape(error.size)
    for i in range(N):
        for start in range(0, n, BLOCK // 4):
            count = min(BLOCK // 4, n - start)
            for k in range(m):
                g = at_out + (k * N + i) * Q
                e = (start * N + i) * m + k
                _combine(gradient[g : g + Q], errors, e, N * m, lanes, (start * N + i) * Q, N * Q, count)
        for s in range(n):
            for k in range(m):
                gradient[at_intercepts + i * m + k] += error[s, i, k]
            delta[:] = 0
            _combine(delta, errors, (s * N + i) * m, 1, parameters, at_out + i * Q, N * Q, m)
            _through(delta, hidden[s, i * Q : (i + 1) * Q], plan[ACTIVATION])
            for c in range(C):
                g = (i * C + c) * p
                back = delta[c * P : (c + 1) * P]
                _add_dots(gradient[g : g + p - 1], back, patches[s])
                gradient[g + p - 1] += _sum(back)


# What both share: the layers.


@compiled_loosely("contract")
def _combine(out: Array, x: Array, at: int, stride: int, Y: Array, start: int, pitch: int, count: int) -> None:
    """Out += Σ_a x[at + a stride] Y[start + a pitch :], a = 0, 1, ..., count - 1 added one after the other."""
    length = out.shape[0]
    a = 0
    while a + 8 <= count:  # the more at a time, the less often ``out`` is loaded and stored
        x0, x1 = x[at + a * stride], x[at + (a + 1) * stride]
        x2, x3 = x[at + (a + 2) * stride], x[at + (a + 3) * stride]
        x4, x5 = x[at + (a + 4) * stride], x[at + (a + 5) * stride]
        x6, x7 = x[at + (a + 6) * stride], x[at + (a + 7) * stride]
        here = start + a * pitch
        y0, y1 = Y[here : here + length], Y[here + pitch : here + pitch + length]
        here += 2 * pitch
        y2, y3 = Y[here : here + length], Y[here + pitch : here + pitch + length]
        here += 2 * pitch
        y4, y5 = Y[here : here + length], Y[here + pitch : here + pitch + length]
        here += 2 * pitch
        y6, y7 = Y[here : here + length], Y[here + pitch : here + pitch + length]
        for j in range(length):
            half = out[j] + x0 * y0[j] + x1 * y1[j] + x2 * y2[j] + x3 * y3[j]
            out[j] = half + x4 * y4[j] + x5 * y5[j] + x6 * y6[j] + x7 * y7[j]
        a += 8
    while a + 4 <= count:
        x0, x1 = x[at + a * stride], x[at + (a + 1) * stride]
        x2, x3 = x[at + (a + 2) * stride], x[at + (a + 3) * stride]
        here = start + a * pitch
        y0, y1 = Y[here : here + length], Y[here + pitch : here + pitch + length]
        here += 2 * pitch
        y2, y3 = Y[here : here + length], Y[here + pitch : here + pitch + length]
        for j in range(length):
            out[j] = out[j] + x0 * y0[j] + x1 * y1[j] + x2 * y2[j] + x3 * y3[j]
        a += 4
    while a < count:
        x0 = x[at + a * stride]
        here = start + a * pitch
        y0 = Y[here : here + length]
        for j in range(length):
            out[j] = out[j] + x0 * y0[j]
        a += 1


@compiled_inside
def _add_product(out: Array, x: Array, y: Array) -> None:
    for j in range(out.shape[0]):
        out[j] += x[j] * y[j]


@compiled_loosely("contract", "reassoc", "nsz")
def _dot(x: Array, y: Array) -> float:
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += x[j] * y[j]
    return total  # type: ignore[no-any-return]


@compiled_loosely("contract", "reassoc", "nsz")
def _add_dots(out: Array, x: Array, Y: Array) -> None:
    """Add to each of ``out`` the product of x with its own part of the flat Y, as long as x is."""
    length, count = x.shape[0], out.shape[0]
    a = 0
    while a + 4 <= count:
        at = a * length
        y0, y1 = Y[at : at + length], Y[at + length : at + 2 * length]
        y2, y3 = Y[at + 2 * length : at + 3 * length], Y[at + 3 * length : at + 4 * length]
        t0, t1, t2, t3 = x.dtype.type(0), x.dtype.type(0), x.dtype.type(0), x.dtype.type(0)
        for j in range(length):
            t0 += x[j] * y0[j]
            t1 += x[j] * y1[j]
            t2 += x[j] * y2[j]
            t3 += x[j] * y3[j]
        out[a] += t0
        out[a + 1] += t1
        out[a + 2] += t2
        out[a + 3] += t3
        a += 4
    while a < count:
        out[a] += _dot(x, Y[a * length : (a + 1) * length])
        a += 1


@compiled_loosely("reassoc", "nsz")
def _sum(x: Array) -> float:
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += x[j]
    return total  # type: ignore[no-any-return]


@compiled_inside
def _speak(hidden: Array, plan: Ints, parameters: Array, out: Array) -> None:
    """Write the output layer (n, N, m) of flat hidden layers (n N Q)."""
    n, N, m = out.shape
    Q = plan[UNITS] * plan[POSITIONS]
    at_out = plan[INPUTS] * N * plan[UNITS]
    at_intercepts = at_out + N * m * Q
    for i in range(N):
        for s in range(n):
            a = hidden[(s * N + i) * Q : (s * N + i + 1) * Q]
            for k in range(m):
                row = at_out + (k * N + i) * Q
                out[s, i, k] = _dot(a, parameters[row : row + Q]) + parameters[at_intercepts + i * m + k]


@compiled_inside
def in_units(out: Array, scale: FloatArray, said: FloatArray) -> None:
    """What learners say, from what their output layers give."""
    for s in range(out.shape[0]):
        for i in range(out.shape[1]):
            for k in range(out.shape[2]):
                said[s, i, k] = out[s, i, k] * scale[UNIT, i]


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


@compiled_inside
def _through(delta: Array, a: Array, activation: int) -> None:
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
def _total(weight: FloatArray) -> float:
    total = 0.0
    for s in range(weight.shape[0]):
        total += max(weight[s], 0.0)
    return total


@compiled_inside
def set_errors(
    out: Array, targets: FloatArray, weight: FloatArray, total: float, scale: FloatArray, error: Array
) -> None:
    """Write the derivative of the loss by the output layer (n, N, m): a row counts as its weight / ``total``."""
    for s in range(out.shape[0]):
        w = weight[s] / total
        for i in range(out.shape[1]):
            inverse = 1.0 / scale[UNIT, i]
            for k in range(out.shape[2]):
                error[s, i, k] = w * (out[s, i, k] - targets[s, i, k] * inverse) if w > 0.0 else 0.0


# The size of the targets.


@compiled_inside
def follow_targets(
    targets: FloatArray,
    weight: FloatArray,
    plan: Ints,
    parameters: Array,
    first: Array,
    second: Array,
    average: Array,
    steps: Ints,
    scale: FloatArray,
) -> int:
    """Let each learner's unit follow the size of its targets; return a learner with a target out of bounds, or -1.

    What the learners say stays as it is, to the last bit: units are powers of two.
    """
    n, N, m = targets.shape
    for i in range(N):
        for s in range(n):
            for k in range(m):
                if weight[s] > 0.0 and not abs(targets[s, i, k]) <= 1e150:
                    return i
    if plan[SCALED] == 0:
        return -1
    for i in range(N):
        is_first = scale[SUM, i] == 0.0
        for s in range(n):
            if weight[s] > 0.0:
                squares = 0.0
                for k in range(m):
                    squares += targets[s, i, k] * targets[s, i, k]
                scale[SUM, i] = FORGOTTEN * scale[SUM, i] + weight[s] * squares / m
                scale[WEIGHT, i] = FORGOTTEN * scale[WEIGHT, i] + weight[s]
        size = math.sqrt(scale[SUM, i] / scale[WEIGHT, i])
        unit = scale[UNIT, i]
        if size > 0.0 and (is_first or size > 2.0 * unit or size < 0.5 * unit):
            scale[UNIT, i] = 2.0 ** math.floor(math.log2(size) + 0.5)
            _change_unit(i, unit / scale[UNIT, i], plan, parameters, first, second, average, steps)
    return -1


@compiled_inside
def _change_unit(
    i: int, ratio: float, plan: Ints, parameters: Array, first: Array, second: Array, average: Array, steps: Ints
) -> None:
    """Say the same in another unit, ``ratio`` old ones for a new one turned round; moments follow their gradients."""
    keeps = 1.0
    if ratio > FAR or ratio < 1.0 / FAR:
        keeps = 0.0
        steps[0, i] = 0
    for section in range(3):
        at, repeats, block = _section(plan, section)
        power = ratio * ratio if section == 0 else ratio  # the hidden layer's gradient has W2 in it as well
        for r in range(repeats):
            start = at + (r * plan[LEARNERS] + i) * block
            stop = start + block
            if section > 0:
                _multiply(parameters, start, stop, ratio)
                _multiply(average, start, stop, ratio)
            _multiply(first, start, stop, power if keeps > 0.0 else 0.0)
            _multiply(second, start, stop, power * power if keeps > 0.0 else 0.0)


@compiled_inside
def _multiply(array: Array, start: int, stop: int, by: float) -> None:
    for j in range(start, min(stop, array.shape[0])):  # none of it where the rule keeps no such array
        array[j] *= by


# The step.


@compiled_inside
def take_step(
    plan: Ints,
    numbers: FloatArray,
    parameters: Array,
    gradient: Array,
    first: Array,
    second: Array,
    average: Array,
    steps: Ints,
) -> int:
    """Take the step of the update rule, and into the average what it led to.

    If a learner has lost its way nothing is changed and that learner is returned; else -1.
    """
    if _is_lost(plan[RULE], numbers[RATE], parameters, gradient):
        return _lost_learner(plan, numbers[RATE], parameters, gradient)
    N = plan[LEARNERS]
    for i in range(N):
        steps[0, i] += 1
        steps[1, i] += plan[AVERAGED]
    start = 0
    while start < N:
        stop = start + 1
        while stop < N and steps[0, stop] == steps[0, start] and steps[1, stop] == steps[1, start]:
            stop += 1
        if stop - start == N:
            _step_range(0, parameters.shape[0], 0, plan, numbers, parameters, gradient, first, second, average, steps)
        else:
            for section in range(3):
                at, repeats, block = _section(plan, section)
                for r in range(repeats):
                    low, high = at + (r * N + start) * block, at + (r * N + stop) * block
                    _step_range(low, high, start, plan, numbers, parameters, gradient, first, second, average, steps)
        start = stop
    return -1


@compiled_inside
def _section(plan: Ints, section: int) -> tuple[int, int, int]:
    """Where a section begins, how often all learners occur in it, and how many numbers one has there each time."""
    N, C, m, p = plan[LEARNERS], plan[UNITS], plan[OUTPUTS], plan[INPUTS]
    Q = C * plan[POSITIONS]
    if section == 0:
        return (0, p, C) if plan[KERNEL] == 0 else (0, 1, C * p)
    if section == 1:
        return N * C * p, m, Q
    return N * (C * p + m * Q), 1, m


@compiled_inside
def _is_lost(rule: int, rate: float, parameters: Array, gradient: Array) -> bool:
    """Whether a parameter or its step is out of all bounds; no step within them leaves the range of numbers."""
    steepest = parameters.dtype.type(1e18 if parameters.itemsize == 4 else 1e150)
    farthest = parameters.dtype.type(1e15 if parameters.itemsize == 4 else 1e120)
    by = parameters.dtype.type(rate if rule <= MOMENTUM else 0.0)
    lost = False
    for j in range(gradient.shape[0]):
        g = abs(gradient[j])
        lost |= not (g <= steepest) or not (abs(parameters[j]) + by * g <= farthest)
    return lost


@compiled_inside
def _lost_learner(plan: Ints, rate: float, parameters: Array, gradient: Array) -> int:
    """The first learner of which :func:`_is_lost` holds."""
    for i in range(plan[LEARNERS]):
        for section in range(3):
            at, repeats, block = _section(plan, section)
            for r in range(repeats):
                low = at + (r * plan[LEARNERS] + i) * block
                if _is_lost(plan[RULE], rate, parameters[low : low + block], gradient[low : low + block]):
                    return i
    return 0


@compiled_inside
def _step_range(
    low: int,
    high: int,
    i: int,
    plan: Ints,
    numbers: FloatArray,
    parameters: Array,
    gradient: Array,
    first: Array,
    second: Array,
    average: Array,
    steps: Ints,
) -> None:
    """Step from low to high, where all learners have taken as many steps as learner i."""
    p, g = parameters[low:high], gradient[low:high]
    rule, rate = plan[RULE], p.dtype.type(numbers[RATE])
    if rule == PLAIN:
        for j in range(p.shape[0]):
            p[j] -= rate * g[j]
    elif rule == MOMENTUM:
        _momentum(p, g, first[low:high], rate, p.dtype.type(numbers[BETA1]))
    elif rule == ADAGRAD:
        _adagrad(p, g, second[low:high], rate, p.dtype.type(numbers[EPS]))
    else:
        left1, left2 = 1.0 - numbers[BETA1] ** steps[0, i], 1.0 - numbers[BETA2] ** steps[0, i]
        rate = p.dtype.type(numbers[RATE] * math.sqrt(left2) / left1)
        eps = p.dtype.type(numbers[EPS] * math.sqrt(left2))
        _adam(p, g, first[low:high], second[low:high], rate, numbers[BETA1], numbers[BETA2], eps)
    if plan[AVERAGED]:
        part = p.dtype.type((numbers[BEND] + 1.0) / (steps[1, i] + numbers[BEND]))
        mean = average[low:high]
        for j in range(p.shape[0]):
            mean[j] += (p[j] - mean[j]) * part


@compiled_inside
def _momentum(p: Array, g: Array, velocity: Array, rate: float, kept: float) -> None:
    for j in range(p.shape[0]):
        velocity[j] = kept * velocity[j] + g[j]
        p[j] -= rate * velocity[j]


@compiled_inside
def _adagrad(p: Array, g: Array, squares: Array, rate: float, eps: float) -> None:
    for j in range(p.shape[0]):
        squares[j] += g[j] * g[j]
        p[j] -= rate * g[j] / (math.sqrt(squares[j]) + eps)


@compiled_inside
def _adam(p: Array, g: Array, mean: Array, square: Array, rate: float, beta1: float, beta2: float, eps: float) -> None:
    kept1, new1 = p.dtype.type(beta1), p.dtype.type(1.0 - beta1)
    kept2, new2 = p.dtype.type(beta2), p.dtype.type(1.0 - beta2)
    for j in range(p.shape[0]):
        mean[j] = kept1 * mean[j] + new1 * g[j]
        square[j] = kept2 * square[j] + new2 * g[j] * g[j]
        p[j] -= rate * mean[j] / (math.sqrt(square[j]) + eps)
