"""Keys that make room in memory: their models answer as if they had never left it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from keyed_streams import frame, states, stream, tiny

from streamboost.cluster.hashing import token_of
from streamboost.cluster.key_shard import KeyShard
from streamboost.cluster.keyed import KeyedBooster


def test_cold_keys_answer_as_if_they_had_never_left_memory():
    keys, columns, y = stream(300, n_keys=25)
    said, found = [], []
    for hot in (2, 1000):
        with KeyedBooster("key", tiny("regression"), hot=hot) as booster:
            said.append([booster.learn(frame(keys, columns, "dicts", range(s, s + 60)), y[s : s + 60]).tolist()
                         for s in range(0, 300, 60)])  # fmt: skip
            found.append(states(booster))
            metrics = booster.metrics()[0]
            assert metrics["hot"] <= hot
            assert metrics["keys"] == 25
            assert (metrics["unpacked"] > 0) == (hot == 2)
    assert said[0] == said[1]
    assert found[0] == found[1]


def test_a_cold_key_is_read_once_for_a_chunk_and_whoever_asks_in_between_changes_nothing(tmp_path):
    rng, tokens, found = np.random.default_rng(0), [token_of(key) for key in ("a", "b", "c", "d")], []
    sizes, chunks = np.full(4, 5), [(rng.uniform(size=(20, 2)), rng.normal(size=20)) for _ in range(4)]
    for hot in (1, 100):
        shard = KeyShard(tiny("regression"), hot=hot)
        shard.settle(str(tmp_path))
        for number, (X, y) in enumerate(chunks):
            rows, before = pa.table({"x": X[:, 0], "z": X[:, 1]}), shard.n_unpacked
            assert shard.check(rows, tokens, sizes, y, number) is None
            if number == 2:
                shard.predict(rows, tokens, sizes)
                before = shard.n_unpacked
            shard.learn(rows, tokens, sizes, y, number)
            assert shard.n_unpacked - before <= (4 if number != 2 else 0)
        assert (shard.n_unpacked > 0) == (hot == 1)
        found.append([shard.state_of(token) for token in tokens])
    assert None not in found[0]
    assert found[0] == found[1]


def test_memory_does_not_hold_cold_keys(tmp_path):
    shard = KeyShard(tiny("regression"), hot=5)
    shard.settle(str(tmp_path))
    for s in range(0, 300, 50):
        tokens = [b"i%d" % i for i in range(s, s + 50)]
        shard.learn([{"x": float(i)} for i in range(50)], tokens, np.ones(50, int), np.ones(50))
        assert shard.sizes()["hot"] <= 5
    assert len(shard.keys()) == shard.n_keys == 300
