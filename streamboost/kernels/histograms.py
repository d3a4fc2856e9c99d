"""Histograms of a tree's rows, and the order of the rows: sums of what they hold by column and bin."""

import numpy as np
from numpy.typing import NDArray

from streamboost._types import FloatArray, IntArray
from streamboost.kernels.compiling import compiled_inside

Codes = NDArray[np.uint8]
Rows = NDArray[np.uint32]
MOST = 0.75  # of the rows, in one bin: passing over them is faster then


@compiled_inside
def histogram_values(target: FloatArray, weight: FloatArray) -> FloatArray:
    """Return what histograms add up: weight * target, weight and 1, the number of rows, in the last column.

    Where all weights are 1 the last two are the same and kept once.
    """
    n, m = target.shape
    are_ones = True
    for s in range(n):
        are_ones &= weight[s] == 1.0
    c = m + 1 if are_ones else m + 2
    values = np.empty((n, c))
    for s in range(n):
        values[s, c - 1] = 1.0
        for k in range(m):
            values[s, k] = weight[s] * target[s, k]
        values[s, m] = weight[s]
    return values


@compiled_inside
def rows_that_count(weight: FloatArray) -> tuple[Rows, int]:
    """Return room for the rows, led by those of weight above 0, and how many these are."""
    rows = np.empty(weight.shape[0], np.uint32)
    n_rows = 0
    for s in range(weight.shape[0]):
        if weight[s] > 0.0:
            rows[n_rows] = s
            n_rows += 1
    return rows, n_rows


@compiled_inside
def sum_of_squares(target: FloatArray, weight: FloatArray) -> float:
    """Return the weighted sum of squares of all targets."""
    total = 0.0
    for s in range(target.shape[0]):
        for k in range(target.shape[1]):
            total += weight[s] * target[s, k] * target[s, k]
    return total


@compiled_inside
def fill_histogram(
    hist: FloatArray, codes: Codes, rows: Rows, values: FloatArray, gathered: FloatArray, highest: IntArray,
    usual: IntArray,
) -> None:  # fmt: skip
    """Add up the ``values`` of ``rows`` by feature and bin into ``hist`` (d, n_bins + 1, c).

    Bins above the ``highest`` of a column, but for that of the missing, hold nothing, and are not even written. Rows
    in the ``usual`` bin of a column are passed over (-1: none): its sums are what all rows have beyond the other bins.
    """
    d, c = codes.shape[0], values.shape[1]
    total = np.zeros(c)
    for j in range(d):
        bins = hist[j]
        for b in range(highest[j] + 1):
            for k in range(c):
                bins[b, k] = 0.0
        for k in range(c):
            bins[bins.shape[0] - 1, k] = 0.0
    for s in range(rows.shape[0]):  # once, so that all columns read them in sequence
        for k in range(c):
            gathered[s, k] = values[rows[s], k]
    has_usual = False
    for j in range(d):
        has_usual |= usual[j] >= 0
    for s in range(rows.shape[0] if has_usual else 0):
        for k in range(c):
            total[k] += gathered[s, k]
    j = 0
    while j < d:
        if usual[j] >= 0:
            _fill_unusual(hist[j], codes[j], rows, gathered, highest[j], usual[j], total)
        elif c == 2 and j + 1 < d and usual[j + 1] < 0:
            _fill_pair(hist[j], hist[j + 1], codes[j], codes[j + 1], rows, gathered)
            j += 1
        else:
            column, bins = codes[j], hist[j]
            for s in range(rows.shape[0]):
                at, more = bins[column[rows[s]]], gathered[s]
                for k in range(c):
                    at[k] += more[k]
        j += 1


@compiled_inside
def _fill_unusual(
    bins: FloatArray, column: Codes, rows: Rows, gathered: FloatArray, highest: int, usual: int, total: FloatArray
) -> None:
    """Fill a column most of whose rows are in one bin."""
    c, missing = bins.shape[1], bins.shape[0] - 1
    for s in range(rows.shape[0]):
        b = column[rows[s]]
        if b != usual:
            for k in range(c):
                bins[b, k] += gathered[s, k]
    for k in range(c):
        others = bins[missing, k] if usual != missing else 0.0
        for b in range(highest + 1):
            others += bins[b, k] if b != usual else 0.0
        bins[usual, k] = total[k] - others


@compiled_inside
def _fill_pair(
    bins: FloatArray, bins2: FloatArray, column: Codes, column2: Codes, rows: Rows, gathered: FloatArray
) -> None:
    """Fill two columns at a time where only two sums are kept: the common case at half the time."""
    for s in range(rows.shape[0]):
        row, g, w = rows[s], gathered[s, 0], gathered[s, 1]
        b, b2 = column[row], column2[row]
        sum_g, sum_w = bins[b, 0] + g, bins[b, 1] + w  # both, before either is stored: one vector instruction
        bins[b, 0], bins[b, 1] = sum_g, sum_w
        sum_g, sum_w = bins2[b2, 0] + g, bins2[b2, 1] + w
        bins2[b2, 0], bins2[b2, 1] = sum_g, sum_w


@compiled_inside
def subtract_histogram(hist: FloatArray, part: FloatArray, highest: IntArray) -> None:
    """Take a child's histogram off its parent's: what is left is the other child's."""
    last, c = hist.shape[1] - 1, hist.shape[2]
    for j in range(hist.shape[0]):
        ours, theirs = hist[j], part[j]
        for b in range(highest[j] + 1):
            for k in range(c):
                ours[b, k] -= theirs[b, k]
        for k in range(c):
            ours[last, k] -= theirs[last, k]


@compiled_inside
def highest_bins(hist: FloatArray) -> IntArray:
    """Return the highest bin of each column that holds a number: many columns need far fewer than all."""
    d, n_bins, c = hist.shape[0], hist.shape[1] - 1, hist.shape[2]
    highest = np.zeros(d, np.int64)
    for j in range(d):
        for b in range(n_bins):
            if hist[j, b, c - 1] > 0.0:
                highest[j] = b
    return highest


@compiled_inside
def usual_bins(hist: FloatArray) -> IntArray:
    """Return the bin of each column that most of its rows are in, by far; -1 where there is none."""
    d, n_bins, c = hist.shape[0], hist.shape[1], hist.shape[2]
    usual = np.full(d, -1)
    for j in range(d):
        most, n = 0, 0.0
        for b in range(n_bins):
            n += hist[j, b, c - 1]
            if hist[j, b, c - 1] > hist[j, most, c - 1]:
                most = b
        if hist[j, most, c - 1] > MOST * n:
            usual[j] = most
    return usual


@compiled_inside
def part_rows(rows: Rows, start: int, stop: int, spare: Rows, column: Codes, goes_left: Codes) -> int:
    """Bring the rows that go left to the front of their range, each side in order; return where they end."""
    rows = rows[start:stop]
    n_left = n_right = np.uint64(0)  # unsigned: an index that need not be checked for counting from the end
    for s in range(rows.shape[0]):
        row = rows[s]
        is_left = np.uint64(goes_left[column[row]])
        rows[n_left] = row  # stored on both sides, kept on one: no branch to mispredict
        spare[n_right] = row
        n_left += is_left
        n_right += np.uint64(1) - is_left
    middle = int(n_left)
    for s in range(middle, rows.shape[0]):
        rows[s] = spare[s - middle]
    return start + middle
