import json

import numpy as np
import pytest

from benchmarks import bench_serve


@pytest.mark.slow
def test_the_load_benchmark_measures_a_server_under_load(tmp_path, capsys):
    assert bench_serve.main(["--quick", "--results", str(tmp_path)]) == 0
    table = {line.split(" | ")[0][2:]: line.split(" | ")[1] for line in capsys.readouterr().out.splitlines()[2:]}
    figures = json.loads((tmp_path / "serve.json").read_text())["figures"]
    assert table["errors"] == "0"
    assert 0 < figures["predictions_per_second"] < 51  # on schedule, or late on a busy machine
    assert 0 < figures["rows_per_second"] < 540
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"] <= figures["latency_ms"]["max"]


def test_percentiles_are_of_milliseconds():
    found = bench_serve.percentiles((np.arange(1, 1001) / 1000).tolist())
    assert found["p50"] == pytest.approx(500.5)
    assert found["max"] == 1000.0
