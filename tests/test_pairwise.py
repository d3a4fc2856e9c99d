import subprocess
import sys
from itertools import combinations, product

import pytest
from pairwise import each, pairwise


@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4), (12, 18, 2), (9, 8, 4), (2, 2, 2, 2, 2), (3, 1, 2, 4)])
def test_every_pair_is_covered_by_few_combinations(sizes):
    axes = [[f"{name}{i}" for i in range(size)] for name, size in zip("abcde", sizes, strict=False)]
    chosen = pairwise(*axes)
    assert chosen == pairwise(*axes)
    for a, b in combinations(range(len(axes)), 2):
        assert {(row[a], row[b]) for row in chosen} == set(product(axes[a], axes[b]))
    first, second, *_ = sorted(sizes, reverse=True)
    assert len(set(chosen)) == len(chosen) <= 1.5 * first * second


def test_every_value_comes_in_as_many_combinations_as_the_longest_axis_has():
    assert each("abc", [1, 2], [True]) == [("a", 1, True), ("b", 2, True), ("c", 1, True)]


@pytest.mark.pairwise(a="xy", b=[1, 2], c=[3, 4])
def test_a_marked_test_is_given_a_value_of_every_axis(a, b, c):
    assert (a in "xy", b in (1, 2), c in (3, 4)) == (True, True, True)


@pytest.mark.parametrize(("words", "expected"), [([], 4), (["--long"], 8)], ids=["short", "long"])
def test_the_long_form_is_the_whole_product(words, expected):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-k", "marked_test", __file__, *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.count("::test_a_marked_test") == expected
