"""How wrong predictions are: a scale that depends on the row, and quantiles of errors in its units, learned online.

The scale of a row is the mixture of eight: the mean absolute error so far, with or without factors for where the row
lies in each column (cells of a quarter of a standard deviation, by stochastic gradients of the Laplace likelihood), and
with or without how large the latest errors were (at three half-lives). They are mixed by their likelihoods.

Quantiles of errors in units of the scale are tracked as in adaptive conformal inference (Gibbs and Candès, 2021), one
step up or down a row, with four sizes of steps, which are mixed by what they lost (2022); a slow correction of their
mixture makes coverage right in the long run whatever the stream does (Angelopoulos et al., 2023).
"""

import math
from typing import NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels.compiling import compiled, compiled_inside
from streamboost.kernels.losses import SMALLEST

CELLS, WIDTH, REACH = 16, 0.25, 1.75  # of a column: below, between and above -+ so many standard deviations; missing
KEEP_MOMENTS = 0.9998  # of the sums behind means and deviations of columns, a row
KEEP_SIZE = 0.9995  # of those behind the mean error
STEP, CAUTIOUS = 0.07, 10.0  # of factors, by AdaGrad, and squares they begin with
BEGIN = 20.0  # rows before cells mean anything
VOLATILITIES = (20.0, 100.0, 500.0)  # half-lives of the latest errors
PRIOR = 5.0  # rows' worth of errors of the usual size
N_SCALES = 8
KEEP_LIKELIHOODS, SHARPNESS = 0.5 ** (1.0 / 1000.0), 0.2
LARGEST_RATIO, WORST, FARTHEST = 5.0, 50.0, 1e6  # that an error teaches factors, that a scale can lose, that counts
STEPS = (0.5, 0.1, 0.02, 0.005)  # of quantiles, in units of the scale
KEEP_LOSSES, CORRECTION = 0.995, 0.005
COUNT, MEAN, VARIANCE = range(3)
BIAS, BIAS_SQUARES, SIZE, N_SIZE, N_ROWS = range(5)
PLAIN, LOCAL, N_LATEST = range(3)
VALUE, LOST = range(2)


class ErrorScale(NamedTuple):
    """The scale of the errors of one output."""

    moments: FloatArray  # (3, d + 1), of columns and, last, the prediction
    cells: FloatArray  # (2, d + 1, CELLS), logarithms of factors, and the squares of their gradients
    totals: FloatArray  # (5,), the factor of all rows, the mean error and how many rows there were
    latest: FloatArray  # (3, 3), errors in units of the scale, for each half-life: without and with factors; rows
    lost: FloatArray  # (N_SCALES,), discounted logarithms of likelihoods


class Quantiles(NamedTuple):
    """Quantiles that are tracked with several sizes of steps."""

    levels: FloatArray  # (L,), rising
    tracks: FloatArray  # (2, STEPS, L), their values, and what they lost
    correction: FloatArray  # (L,)


@compiled_inside
def find_cells(x: FloatArray, prediction: float, moments: FloatArray, cells: FloatArray) -> None:
    """Write in which cell each column lies, and the prediction, (d + 1,); -1 for a column that had no value yet."""
    d = x.shape[0]
    for j in range(d + 1):
        v = x[j] if j < d else prediction
        cells[j] = CELLS - 1 if moments[COUNT, j] > 0.0 else -1.0
        if v == v and moments[COUNT, j] > 0.0:
            deviation = math.sqrt(moments[VARIANCE, j])
            z = (v - moments[MEAN, j]) / deviation if deviation > 0.0 else 0.0
            cells[j] = int(min(max((z + REACH) / WIDTH, 0.0), CELLS - 1.001))


@compiled_inside
def log_scales(scale: ErrorScale, cells: FloatArray, each: FloatArray) -> float:
    """Write the logarithm of every scale for a row, (N_SCALES,), and return that of their mixture."""
    totals, latest, lost = scale.totals, scale.latest, scale.lost
    size = max(totals[SIZE] / totals[N_SIZE] if totals[N_SIZE] > 0.0 else 0.0, SMALLEST)
    local = totals[BIAS]
    for j in range(cells.shape[0]):
        if cells[j] >= 0.0:
            local += scale.cells[0, j, int(cells[j])]
    best = lost[0]
    for c in range(1, N_SCALES):
        best = min(best, lost[c])
    mixed, total = 0.0, 0.0
    for c in range(N_SCALES):
        is_local, h = c // 4, c % 4 - 1
        each[c] = math.log(size) + (local if is_local else 0.0)
        if h >= 0:
            each[c] += math.log((latest[is_local, h] + PRIOR) / (latest[N_LATEST, h] + PRIOR))
        weight = math.exp((best - lost[c]) * SHARPNESS)
        mixed += weight * each[c]
        total += weight
    return mixed / total


@compiled_inside
def in_units(error: float, log_size: float) -> float:
    """An absolute error in units of a scale, of which the logarithm is given; at most the farthest that counts."""
    return math.exp(min(math.log(error) - log_size, math.log(FARTHEST))) if error > 0.0 else 0.0


@compiled_inside
def learn_scale(
    x: FloatArray, prediction: float, error: float, each: FloatArray, cells: FloatArray, scale: ErrorScale
) -> None:
    """Take in the absolute error of a row, of which every scale said what is in ``each``."""
    totals, latest, lost, moments, factors = scale.totals, scale.latest, scale.lost, scale.moments, scale.cells
    d = x.shape[0]
    plain, local = in_units(error, each[0]), in_units(error, each[4])
    if totals[N_SIZE] > 0.0:
        for c in range(N_SCALES):
            lost[c] = lost[c] * KEEP_LIKELIHOODS + each[c] + min(in_units(error, each[c]), WORST)
        for h in range(len(VOLATILITIES)):
            keep = 0.5 ** (1.0 / VOLATILITIES[h])
            latest[PLAIN, h] = latest[PLAIN, h] * keep + min(plain, 2.0 * LARGEST_RATIO)
            latest[LOCAL, h] = latest[LOCAL, h] * keep + min(local, 2.0 * LARGEST_RATIO)
            latest[N_LATEST, h] = latest[N_LATEST, h] * keep + 1.0
    totals[SIZE], totals[N_SIZE] = totals[SIZE] * KEEP_SIZE + error, totals[N_SIZE] * KEEP_SIZE + 1.0
    if totals[N_ROWS] >= BEGIN:
        slope = 1.0 - min(local, LARGEST_RATIO)
        totals[BIAS_SQUARES] += slope * slope
        totals[BIAS] -= STEP * slope / math.sqrt(totals[BIAS_SQUARES] + 1.0)
        for j in range(d + 1):
            if cells[j] >= 0.0:
                p = int(cells[j])
                factors[1, j, p] += slope * slope
                factors[0, j, p] -= STEP * slope / math.sqrt(factors[1, j, p] + CAUTIOUS)
    totals[N_ROWS] += 1.0
    for j in range(d + 1):
        v = x[j] if j < d else prediction
        if abs(v) <= 1e150:
            moments[COUNT, j] = moments[COUNT, j] * KEEP_MOMENTS + 1.0
            away = v - moments[MEAN, j]
            moments[MEAN, j] += away / moments[COUNT, j]
            moments[VARIANCE, j] += (away * (v - moments[MEAN, j]) - moments[VARIANCE, j]) / moments[COUNT, j]


@compiled_inside
def read_quantile(quantiles: Quantiles, a: int) -> float:
    """The quantile of one level."""
    tracks = quantiles.tracks
    best = tracks[LOST, 0, a]
    for r in range(1, len(STEPS)):
        best = min(best, tracks[LOST, r, a])
    mixed, total = 0.0, 0.0
    for r in range(len(STEPS)):
        weight = math.exp(best - tracks[LOST, r, a])
        mixed += weight * tracks[VALUE, r, a]
        total += weight
    return float(mixed / total) + float(quantiles.correction[a])


@compiled_inside
def learn_quantiles(u: float, quantiles: Quantiles) -> None:
    """Take in a number: quantiles below it go up, those above go down."""
    tracks = quantiles.tracks
    for a in range(quantiles.levels.shape[0]):
        level = quantiles.levels[a]
        quantiles.correction[a] += CORRECTION * (level - (1.0 if u <= read_quantile(quantiles, a) else 0.0))
        for r in range(len(STEPS)):
            above = u - tracks[VALUE, r, a]
            tracks[LOST, r, a] = tracks[LOST, r, a] * KEEP_LOSSES + (level if above > 0.0 else level - 1.0) * above
            tracks[VALUE, r, a] += STEPS[r] * (level - (1.0 if above <= 0.0 else 0.0))


@compiled
def learn_errors(
    X: FloatArray, predictions: FloatArray, y: FloatArray, weight: FloatArray, scale: ErrorScale, quantiles: Quantiles
) -> None:
    """Take in what was predicted of rows (n,), and their targets; rows of weight 0 leave no trace."""
    cells, each = np.empty(X.shape[1] + 1), np.empty(N_SCALES)
    for s in range(X.shape[0]):
        if weight[s] > 0.0:
            find_cells(X[s], predictions[s], scale.moments, cells)
            size, error = log_scales(scale, cells, each), y[s] - predictions[s]
            if scale.totals[N_SIZE] > 0.0:  # else there is no unit yet
                learn_quantiles(math.copysign(in_units(abs(error), size), error), quantiles)
            learn_scale(X[s], predictions[s], abs(error), each, cells, scale)


@compiled
def learn_numbers(numbers: FloatArray, weight: FloatArray, quantiles: Quantiles) -> None:
    """Take in numbers (n,), one after the other; those of weight 0 leave no trace."""
    for s in range(numbers.shape[0]):
        if weight[s] > 0.0:
            learn_quantiles(numbers[s], quantiles)


@compiled
def scales_of(X: FloatArray, predictions: FloatArray, scale: ErrorScale) -> FloatArray:
    """Return how large errors are expected to be in rows of which something is predicted, (n,)."""
    sizes, cells, each = np.empty(X.shape[0]), np.empty(X.shape[1] + 1), np.empty(N_SCALES)
    for s in range(X.shape[0]):
        find_cells(X[s], predictions[s], scale.moments, cells)
        sizes[s] = math.exp(log_scales(scale, cells, each))
    return sizes


@compiled
def read_quantiles(quantiles: Quantiles) -> FloatArray:
    """Return the quantile of every level, (L,): rising as the levels do."""
    values = np.empty(quantiles.levels.shape[0])
    for a in range(values.shape[0]):
        values[a] = read_quantile(quantiles, a)
    return np.sort(values)
