"""A worker's place: what it lets through."""

import numpy as np
import pyarrow as pa
import pytest
from mortal_crews import (
    Chain,
    nobody_is_killed_at_first,  # noqa: F401 - a fixture
)

from streamboost.cluster import WrongState
from streamboost.cluster.cuts import CutBook
from streamboost.cluster.station import Station, size_of


def test_an_empty_worker_refuses_every_operation_until_it_has_loaded_a_cut(tmp_path):
    book = CutBook(tmp_path / "crew")
    folder = book.folder(0)
    folder.mkdir()
    station = Station()
    assert station.handle("build", Chain, {}, str(folder), book.manifest.mark).error is None
    for message in (("call", 1, "add", (5,)), ("ask", 0, "numbers", ()), ("save", 1, 0)):
        answer = station.handle(*message)
        assert answer.is_fatal
        with pytest.raises(WrongState, match="has loaded no cut, expected it at 0"):
            raise answer.error
    station.handle("load", 0, 0)
    assert station.handle("call", 1, "add", (5,)).value == 1
    assert "is at operation 1, expected it at 6" in str(station.handle("call", 7, "add", (5,)).error)
    assert station.handle("ask", 1, "numbers", ()).is_fatal  # it stays out of turn until a cut is loaded
    book.close()


def test_sizes_count_arrays_tables_and_text():
    assert size_of(np.zeros((10, 10))) == 800
    assert size_of([np.zeros(10), "four"]) == 16 + 80 + 4
    assert size_of(pa.table({"x": np.arange(100)})) == 800
    assert size_of({"key": b"12345"}) == 8


def test_a_folder_that_is_not_the_drivers_is_refused(tmp_path):
    station = Station()
    (tmp_path / "elsewhere/worker-00000").mkdir(parents=True)
    answer = station.handle("build", Chain, {}, str(tmp_path / "elsewhere/worker-00000"), "mark")
    with pytest.raises(FileNotFoundError, match="is not the folder that the driver made there"):
        raise answer.error
