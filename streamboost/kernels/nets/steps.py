"""The steps networks take: update rules, averages of what they led to, and learners that lost their way."""

import math

from streamboost.kernels.compiling import compiled_inside
from streamboost.kernels.nets import layout
from streamboost.kernels.nets.layout import Array, Ints, Nets, section_of

PLAIN, MOMENTUM, ADAGRAD, ADAM = range(4)


@compiled_inside
def take_step(nets: Nets, gradient: Array) -> int:
    """Take the step of the update rule, and into the average what it led to.

    If a learner has lost its way nothing is changed and that learner is returned; else -1.
    """
    plan, steps, rate = nets.plan, nets.steps, nets.numbers[layout.RATE]
    if _is_lost(plan[layout.RULE], rate, nets.parameters, gradient):
        return _lost_learner(plan, rate, nets.parameters, gradient)
    N = plan[layout.LEARNERS]
    for i in range(N):
        steps[0, i] += 1
        steps[1, i] += plan[layout.AVERAGED]
    start = 0
    while start < N:
        stop = start + 1
        while stop < N and steps[0, stop] == steps[0, start] and steps[1, stop] == steps[1, start]:
            stop += 1
        if stop - start == N:
            _step_range(0, gradient.shape[0], 0, nets, gradient)
        else:
            for section in range(3):
                at, repeats, block = section_of(plan, section)
                for r in range(repeats):
                    low, high = at + (r * N + start) * block, at + (r * N + stop) * block
                    _step_range(low, high, start, nets, gradient)
        start = stop
    return -1


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
    for i in range(plan[layout.LEARNERS]):
        for section in range(3):
            at, repeats, block = section_of(plan, section)
            for r in range(repeats):
                low = at + (r * plan[layout.LEARNERS] + i) * block
                if _is_lost(plan[layout.RULE], rate, parameters[low : low + block], gradient[low : low + block]):
                    return i
    return 0


@compiled_inside
def _step_range(low: int, high: int, i: int, nets: Nets, gradient: Array) -> None:
    """Step from low to high, where all learners have taken as many steps as learner i."""
    plan, numbers, steps = nets.plan, nets.numbers, nets.steps
    p, g = nets.parameters[low:high], gradient[low:high]
    rule, rate = plan[layout.RULE], p.dtype.type(numbers[layout.RATE])
    if rule == PLAIN:
        for j in range(p.shape[0]):
            p[j] -= rate * g[j]
    elif rule == MOMENTUM:
        _momentum(p, g, nets.first[low:high], rate, p.dtype.type(numbers[layout.BETA1]))
    elif rule == ADAGRAD:
        _adagrad(p, g, nets.second[low:high], rate, p.dtype.type(numbers[layout.EPS]))
    else:
        left1, left2 = 1.0 - numbers[layout.BETA1] ** steps[0, i], 1.0 - numbers[layout.BETA2] ** steps[0, i]
        rate = p.dtype.type(numbers[layout.RATE] * math.sqrt(left2) / left1)
        eps = p.dtype.type(numbers[layout.EPS] * math.sqrt(left2))
        _adam(
            p, g, nets.first[low:high], nets.second[low:high], rate, numbers[layout.BETA1], numbers[layout.BETA2], eps
        )
    if plan[layout.AVERAGED]:
        part = p.dtype.type((numbers[layout.AVERAGING_POWER] + 1.0) / (steps[1, i] + numbers[layout.AVERAGING_POWER]))
        mean = nets.average[low:high]
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
