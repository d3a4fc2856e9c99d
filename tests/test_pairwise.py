from itertools import combinations, product

import pytest
from pairwise import pairwise


@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4), (12, 18, 2), (9, 8, 4), (2, 2, 2, 2, 2), (3, 1, 2, 4)])
def test_every_pair_is_covered_by_few_combinations(sizes):
    axes = [[f"{name}{i}" for i in range(size)] for name, size in zip("abcde", sizes, strict=False)]
    chosen = pairwise(*axes)
    assert chosen == pairwise(*axes)
    for a, b in combinations(range(len(axes)), 2):
        assert {(row[a], row[b]) for row in chosen} == set(product(axes[a], axes[b]))
    first, second, *_ = sorted(sizes, reverse=True)
    assert len(set(chosen)) == len(chosen) <= 1.5 * first * second
