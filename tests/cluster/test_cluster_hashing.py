"""Keys to workers: stable, balanced, and few keys move."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamboost.cluster.hashing import hash_of, key_of, plain_key, token_of, worker_of, workers_of

KEYS = st.one_of(st.text(), st.integers(), st.booleans())


def jump_by_the_paper(number: int, n_workers: int) -> int:
    """The algorithm as Lamping and Veach print it, in Python's own whole numbers."""
    b, j = -1, 0
    while j < n_workers:
        b = j
        number = (number * 2862933555777941757 + 1) % 2**64
        j = int((b + 1) * (float(1 << 31) / float((number >> 33) + 1)))
    return b


@given(KEYS, st.integers(1, 2000))
def test_a_key_goes_where_hashlib_and_the_paper_say(key, n_workers):
    if isinstance(key, bool):
        text = f"b{int(key)}".encode()
    elif isinstance(key, int):
        text = f"i{key}".encode()
    else:
        text = b"s" + key.encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    assert hash_of(token_of(key)) == number
    assert worker_of(key, n_workers) == jump_by_the_paper(number, n_workers)


def test_golden_workers():
    """Computed once: if these change, every cluster's keys are on the wrong worker."""
    keys = ["berlin", "", "7", 7, True, -1, 2**70, "Zürich"]
    assert hash_of(b"sberlin") == 0xB2BF0E3966601DB1
    assert [worker_of(key, 16) for key in keys] == [15, 7, 5, 9, 11, 2, 8, 10]


def test_another_process_with_other_hash_seed_agrees():
    code = "from streamboost.cluster.hashing import worker_of; print([worker_of(f'k{i}', 7) for i in range(50)])"
    said = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "12345"}, capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == str([worker_of(f"k{i}", 7) for i in range(50)])


@given(KEYS)
def test_a_token_leads_back_to_its_key(key):
    back = key_of(token_of(key))
    assert back == key
    assert type(back) is type(key)


@given(st.lists(KEYS, max_size=30))
def test_different_keys_have_different_tokens(keys):
    distinct = {(type(key), key) for key in keys}
    assert len({token_of(key) for _, key in distinct}) == len(distinct)


@pytest.mark.parametrize("n_workers", [2, 3, 16, 100])
def test_workers_are_balanced_within_a_few_percent(n_workers):
    per_worker = 10_000 if n_workers <= 16 else 2_000
    tokens = [token_of(i) for i in range(per_worker * n_workers)]
    counts = np.bincount(workers_of(tokens, n_workers), minlength=n_workers)
    assert abs(counts / per_worker - 1).max() < (0.04 if n_workers <= 16 else 0.1)


@pytest.mark.parametrize("n_workers", [1, 2, 4, 9, 50])
def test_few_keys_move_and_only_to_the_new_worker(n_workers):
    tokens = [token_of(f"customer {i}") for i in range(20_000)]
    before, after = workers_of(tokens, n_workers), workers_of(tokens, n_workers + 1)
    moved = before != after
    assert set(after[moved].tolist()) == {n_workers}
    assert moved.mean() == pytest.approx(1 / (n_workers + 1), rel=0.1)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (np.int8(3), 3),
        (np.uint64(2**63), 2**63),
        (np.str_("a"), "a"),
        (np.bool_(True), True),
        (5.0, 5),
        (np.float32(-2), -2),
        (None, None),
        (np.nan, None),
    ],
)
def test_keys_are_taken_as_python_has_them(value, key):
    plain = plain_key(value)
    assert plain == key
    assert type(plain) is type(key)


def test_missing_values_of_pandas_are_missing():
    pandas = pytest.importorskip("pandas")
    assert plain_key(pandas.NA) is None
    assert plain_key(pandas.NaT) is None


@pytest.mark.parametrize("value", [1.5, b"bytes", (1, 2), np.inf, 2.0**60, np.datetime64("2026-01-01")])
def test_other_things_are_no_keys(value):
    with pytest.raises(TypeError, match="expected text, a whole number or a boolean"):
        plain_key(value)


def test_no_workers_are_refused():
    with pytest.raises(ValueError, match="n_workers is 0"):
        workers_of([b"sa"], 0)
