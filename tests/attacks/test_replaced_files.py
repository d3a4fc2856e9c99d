"""Files that are replaced, cut off or rotated while they are followed: noticed, and told."""

import os

import pytest

from streamboost.sources import FileSource


def replaced(path):
    path.with_suffix(".new").write_text("x,y\n9,9\n8,8\n7,7\n")
    os.replace(path.with_suffix(".new"), path)


def replaced_by_a_shorter_one(path):
    path.with_suffix(".new").write_text("x,y\n")
    os.replace(path.with_suffix(".new"), path)


def rotated(path):
    os.rename(path, path.with_suffix(".1"))
    path.write_text("x,y\n5,5\n")


def cut_off(path):
    path.write_text("x,y\n")


@pytest.mark.parametrize("change", [replaced, replaced_by_a_shorter_one, rotated, cut_off])
def test_a_followed_file_that_is_another_one_now_is_told(tmp_path, change):
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n1,2\n3,4\n")
    changes = iter([change])

    def stop():
        for one in changes:
            one(path)
        return False

    source = FileSource(path, follow=True, poll=0.01, idle_timeout=5.0, stop=stop)
    rows = []
    with pytest.raises(ValueError, match=r"was replaced by another file|shrank"):
        rows.extend(row for batch in source.read() for row in batch.table.to_pylist())
    assert {"x": 9, "y": 9} not in rows
