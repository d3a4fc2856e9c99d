import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamboost.labels import Labels

one_kind = st.one_of(
    st.lists(st.text(max_size=3), min_size=1),
    st.lists(st.integers(-5, 5), min_size=1),
    st.lists(st.booleans(), min_size=1),
)


@given(one_kind)
def test_numbers_are_handed_out_in_order_of_appearance(y):
    codes, new = Labels().encode(y)
    assert new == list(dict.fromkeys(y))
    assert [new[int(code)] for code in codes] == y


@given(one_kind, st.integers(0, 20))
def test_rechunking_gives_the_same_numbers(y, cut):
    whole, _ = Labels().encode(y)
    first, new = Labels().encode(y[:cut])
    second, _ = Labels().extended(new).encode(y[cut:])
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_knowing_more_is_being_another_object():
    labels = Labels().extended(["a"])
    more = labels.extended(["b"])
    labels.encode(["c"])
    assert labels.classes.tolist() == ["a"]
    assert more.classes.tolist() == ["a", "b"]


def test_numpy_scalars_are_the_labels_they_hold():
    labels = Labels().extended([True, False])
    assert labels.encode(np.array([False, True]))[0].tolist() == [1.0, 0.0]
    assert Labels().extended([3]).encode(np.array([3.0]))[1] == []


@pytest.mark.parametrize("y", [[1, "a"], ["a", True], [True, 1], [1.5], [None], [float("nan")], [("a",)]])
def test_labels_of_no_kind_or_of_two_are_refused(y):
    with pytest.raises(ValueError, match=r"the label in row \d is"):
        Labels().encode(y)
