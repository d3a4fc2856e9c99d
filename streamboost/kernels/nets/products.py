"""Sums of products, which are nearly all of the work of networks: each in an order that is always the same."""

from streamboost.kernels.compiling import compiled_inside, compiled_loosely
from streamboost.kernels.nets.layout import Array


@compiled_loosely("contract")
def combine(out: Array, x: Array, at: int, stride: int, Y: Array, start: int, pitch: int, count: int) -> None:
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
def add_product(out: Array, x: Array, y: Array) -> None:
    """Out += x y, each by each."""
    for j in range(out.shape[0]):
        out[j] += x[j] * y[j]


@compiled_loosely("contract", "reassoc", "nsz")
def dot(x: Array, y: Array) -> float:
    """Σ x y, several terms at a time."""
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += x[j] * y[j]
    return total  # type: ignore[no-any-return]


@compiled_loosely("contract", "reassoc", "nsz")
def add_dots(out: Array, x: Array, Y: Array) -> None:
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
        out[a] += dot(x, Y[a * length : (a + 1) * length])
        a += 1


@compiled_loosely("reassoc", "nsz")
def sum_of(x: Array) -> float:
    """Σ x, several terms at a time."""
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += x[j]
    return total  # type: ignore[no-any-return]
