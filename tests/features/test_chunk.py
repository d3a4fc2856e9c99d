import numpy as np
import pytest

from streamboost.features.chunk import check_chunk, check_rows, check_weight
from streamboost.losses import Squared


def test_a_chunk_of_lists_becomes_float_arrays():
    X, y, weight = check_chunk([[1, 2], [3, 4]], [5, 6], 2, Squared())
    assert X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.tolist() == [[5.0], [6.0]]
    assert weight.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda X: X[::-1][::-1], lambda X: X.astype(">f8"), np.float32])
def test_rows_of_any_layout_become_c_contiguous_doubles(layout):
    X = np.arange(6.0).reshape(3, 2)
    rows = check_rows(layout(X))
    assert rows.flags.c_contiguous
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows, X)


def test_targets_and_weights_are_copies():
    y, weight = np.zeros(2), np.ones(2)
    chunk = check_chunk(np.zeros((2, 1)), y, weight, Squared())
    y[:], weight[:] = 7, 7
    assert chunk.y.max() == 0
    assert chunk.weight.max() == 1


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros(3), r"X has shape \(3,\), expected \(rows, features\)"),
        (np.zeros((2, 0)), r"X has shape \(2, 0\)"),
        (np.zeros((2, 3)), "X has 3 features, expected 2"),
        ([[0.0, 1.0], [0.0, np.inf]], "infinity in row 1, column 1"),
    ],
)
def test_rows_nobody_could_learn_from_are_refused(X, words):
    with pytest.raises(ValueError, match=words):
        check_rows(X, n_features=2)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([1.0], r"weight has shape \(1,\), expected \(2,\)"),
        ([1.0, -1.0], "weight in row 1 is -1.0.*weigh it 0"),
        ([np.nan, 1.0], "weight in row 0 is nan"),
        ([1.0, np.inf], "weight in row 1 is inf"),
    ],
)
def test_weights_that_are_none_are_refused_by_row(weight, words):
    with pytest.raises(ValueError, match=words):
        check_weight(weight, 2)


def test_a_target_is_needed_for_every_row():
    with pytest.raises(ValueError, match="X has 2 rows and y has shape"):
        check_chunk(np.zeros((2, 1)), np.zeros(3), None, Squared())
