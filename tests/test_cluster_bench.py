import json

import numpy as np
import pytest

from benchmarks import bench_keyed


@pytest.mark.slow
def test_the_benchmark_of_keys_measures_and_extrapolates(tmp_path, capsys):
    assert bench_keyed.main(["--quick", "--results", str(tmp_path), "--workers"]) == 0
    figures = json.loads((tmp_path / "keyed.json").read_text())["figures"]
    assert all(size > 1000 for size in figures["memory"].values())
    assert all(seconds > 0 for seconds in figures["checkpoint"].values())
    assert figures["speed"].keys() == {"10 keys", "100 keys", "10 keys, one in ten in memory"}
    assert all(speed["rows"] > 0 for speed in figures["speed"].values())
    assert "| 10,000 keys on 1,000 workers | figure |" in capsys.readouterr().out
    far = dict(figures["simulated"]["table"])
    assert figures["simulated"]["fullest"] > 10  # on average there are ten
    total = float(far["memory of all workers, all keys hot"].split()[0])
    assert total == pytest.approx(10_000 * figures["memory"]["in memory"] / 1e9, abs=0.06)


def test_a_chunk_reaches_as_many_workers_as_throwing_balls_into_bins_says():
    """Messages of a row: there and back for each worker that a chunk has a row for; by counting, over many throws."""
    rng = np.random.default_rng(0)
    reached = np.mean([len(np.unique(rng.integers(0, 1000, 1000))) for _ in range(200)])
    figures = {
        "memory": {"in memory": 1.0, "in the file, compressed": 1.0},
        "checkpoint": {"all keys changed": 1.0},
        "driver": {"1000 workers": 1e-6},
    }
    far = dict(bench_keyed.simulate(figures, 10_000, 1000)["table"])
    assert float(far["messages a row, chunks of 1,000"]) == pytest.approx(2 * reached / 1000, rel=0.01)
    assert far["what one driver can sort, at most"] == "1,000,000 rows/s"
