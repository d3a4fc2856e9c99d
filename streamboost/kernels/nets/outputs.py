"""What networks say and should have said: the output layer, its errors, and the unit in which each learner speaks.

The unit follows the size of the targets, so that the numbers inside a network are about 1 whatever it is told.
"""

import math

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled_inside
from streamboost.kernels.nets import layout
from streamboost.kernels.nets.layout import Array, Ints, Nets, section_of
from streamboost.kernels.nets.products import dot

MEMORY = 1000.0  # rows over which the size of the targets is forgotten
FORGOTTEN = 1.0 - 1.0 / MEMORY
FAR = 1024.0  # a unit that changes by more begins its moments anew: their fourth power would leave float32


@compiled_inside
def speak(hidden: Array, plan: Ints, parameters: Array, out: Array) -> None:
    """Write the output layer (n, N, m) of flat hidden layers (n N Q)."""
    n, N, m = out.shape
    Q = plan[layout.UNITS] * plan[layout.POSITIONS]
    at_out = plan[layout.INPUTS] * N * plan[layout.UNITS]
    at_intercepts = at_out + N * m * Q
    for i in range(N):
        for s in range(n):
            a = hidden[(s * N + i) * Q : (s * N + i + 1) * Q]
            for k in range(m):
                row = at_out + (k * N + i) * Q
                out[s, i, k] = dot(a, parameters[row : row + Q]) + parameters[at_intercepts + i * m + k]


@compiled_inside
def in_units(out: Array, scale: FloatArray, said: FloatArray) -> None:
    """What learners say, from what their output layers give."""
    for s in range(out.shape[0]):
        for i in range(out.shape[1]):
            for k in range(out.shape[2]):
                said[s, i, k] = out[s, i, k] * scale[layout.UNIT, i]


@compiled_inside
def total_weight(weight: FloatArray) -> float:
    """What rows weigh together."""
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
            inverse = 1.0 / scale[layout.UNIT, i]
            for k in range(out.shape[2]):
                error[s, i, k] = w * (out[s, i, k] - targets[s, i, k] * inverse) if w > 0.0 else 0.0


@compiled_inside
def follow_targets(targets: FloatArray, weight: FloatArray, nets: Nets) -> int:
    """Let each learner's unit follow the size of its targets; return a learner with a target out of bounds, or -1.

    What the learners say stays as it is, to the last bit: units are powers of two.
    """
    (n, N, m), scale = targets.shape, nets.scale
    for i in range(N):
        for s in range(n):
            for k in range(m):
                if weight[s] > 0.0 and not abs(targets[s, i, k]) <= 1e150:
                    return i
    if nets.plan[layout.SCALED] == 0:
        return -1
    for i in range(N):
        is_first = scale[layout.SUM, i] == 0.0
        for s in range(n):
            if weight[s] > 0.0:
                squares = 0.0
                for k in range(m):
                    squares += targets[s, i, k] * targets[s, i, k]
                scale[layout.SUM, i] = FORGOTTEN * scale[layout.SUM, i] + weight[s] * squares / m
                scale[layout.WEIGHT, i] = FORGOTTEN * scale[layout.WEIGHT, i] + weight[s]
        size = math.sqrt(scale[layout.SUM, i] / scale[layout.WEIGHT, i])
        unit = scale[layout.UNIT, i]
        if size > 0.0 and (is_first or size > 2.0 * unit or size < 0.5 * unit):
            scale[layout.UNIT, i] = 2.0 ** math.floor(math.log2(size) + 0.5)
            _change_unit(i, unit / scale[layout.UNIT, i], nets)
    return -1


@compiled_inside
def _change_unit(i: int, ratio: float, nets: Nets) -> None:
    """Say the same in another unit, ``ratio`` old ones for a new one turned round; moments follow their gradients."""
    keeps = 1.0
    if ratio > FAR or ratio < 1.0 / FAR:
        keeps = 0.0
        nets.steps[0, i] = 0
    for section in range(3):
        at, repeats, block = section_of(nets.plan, section)
        power = ratio * ratio if section == 0 else ratio  # the hidden layer's gradient has W2 in it as well
        for r in range(repeats):
            start = at + (r * nets.plan[layout.LEARNERS] + i) * block
            stop = start + block
            if section > 0:
                _multiply(nets.parameters, start, stop, ratio)
                _multiply(nets.average, start, stop, ratio)
            _multiply(nets.first, start, stop, power if keeps > 0.0 else 0.0)
            _multiply(nets.second, start, stop, power * power if keeps > 0.0 else 0.0)


@compiled_inside
def _multiply(array: Array, start: int, stop: int, by: float) -> None:
    for j in range(start, min(stop, array.shape[0])):  # none of it where the rule keeps no such array
        array[j] *= by
