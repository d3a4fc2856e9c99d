"""Disks that fail: what was asked is refused whole, and the health says so until all is well."""

import pytest
from served import REQUESTS, fail, friedman, wait_for

from streamboost.persistence.checkpoints import CheckpointStore, read_latest
from streamboost.serving import writer as writer_module


def is_failing(served):
    answer = served.get("/healthz")
    assert answer.status_code in (200, 503)
    assert answer.json()["status"] == {200: "ok", 503: "failing"}[answer.status_code]
    if answer.status_code == 503:
        assert "No space left" in answer.json()["error"]
    return answer.status_code == 503


def test_expiry_that_fails_shows_in_the_health_which_names_files_and_not_where_they_are(regression, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device", str(regression.live.directory / "journal.sqlite"))

    assert not is_failing(regression)
    monkeypatch.setattr(regression.live, "expire", refuse)
    wait_for(lambda: is_failing(regression))
    error = regression.get("/healthz").json()["error"]
    assert "'journal.sqlite'" in error
    assert str(regression.live.directory) not in error
    monkeypatch.undo()
    wait_for(lambda: not is_failing(regression))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_could_not_be_written_down_shows_in_the_health_until_the_disk_is_well(
    regression, monkeypatch, name
):
    monkeypatch.setattr(writer_module, "PAUSE", 0.05)
    monkeypatch.setattr(writer_module, "RETRY_CHECKPOINT", 0.2)
    regression.learn(friedman(5))
    path, body = REQUESTS[name]
    tries = []
    with pytest.MonkeyPatch.context() as full:
        full.setattr(regression.live, name, fail)
        full.setattr(CheckpointStore, "save", lambda *_: tries.append(1) or fail())
        assert regression.post(path, json=body).status_code == 503
        assert is_failing(regression)
        wait_for(lambda: len(tries) > 2)
        assert is_failing(regression), "the disk is still full, though nobody asks for anything"
    wait_for(lambda: not is_failing(regression))


def test_a_disk_that_fails_is_a_503_and_nothing_is_taken_until_the_next_request_is_written_down(regression):
    regression.learn(friedman(20))
    before = regression.state()
    with pytest.MonkeyPatch.context() as full:
        full.setattr(regression.live, "learn", fail)
        answer = regression.post("/learn", json={"rows": friedman(5)})
        assert (answer.status_code, "No space left" in answer.json()["error"]) == (503, True)
        assert "retry-after" in answer.headers
        assert regression.state() == before
        assert is_failing(regression)
    regression.learn(friedman(5))
    assert not is_failing(regression)


def test_a_checkpoint_that_fails_shows_in_the_health_and_is_tried_again(regression, monkeypatch):
    monkeypatch.setattr(writer_module, "RETRY_CHECKPOINT", 0.0)
    regression.learn(friedman(30))
    with pytest.MonkeyPatch.context() as full:
        full.setattr(CheckpointStore, "save", fail)
        assert regression.post("/checkpoint").status_code == 503
        assert is_failing(regression)
    wait_for(lambda: not is_failing(regression))
    assert read_latest(regression.live.directory).rows == 30
