"""What a token opens, whose an id is, and who still gets in when many are waiting."""

import asyncio
from contextlib import contextmanager

import httpx
import pyarrow as pa
import pytest
from live_models import classifier, regressor, rows_of

from streamboost.dashboard import serve_in_thread
from streamboost.live import IdTaken, LiveModel
from streamboost.serving import create_app
from streamboost.serving.auth import Tokens
from streamboost.serving.middleware import HEALTH_SLOTS, RequestMiddleware

READER, TEACHER, OTHER = ("r" * 20, "t" * 20, "o" * 20)
TOKENS = Tokens({READER: ["predict"], TEACHER: ["predict", "learn"], OTHER: ["predict", "learn"]})


@contextmanager
def client_of(live, **options):
    with (
        serve_in_thread(create_app(live, **options)) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        yield client


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("default", [None, 0])
def test_keyed_rows_that_would_be_learned_by_themselves_need_a_token_that_may_learn(tmp_path, default):
    with LiveModel(tmp_path / "live", classifier(), target="y", expire_after=60.0, default=default) as live:
        live.learn(pa.table({"a": [1.0, 2.0], "y": [0, 1]}))
        with client_of(live, tokens=TOKENS) as client:
            body = {"rows": [{"a": 1.0}], "keys": ["k"]}
            refused = client.post("/predict", json=body, headers=bearer(READER))
            assert refused.status_code == (200 if default is None else 403)
            assert client.post("/predict", json={"rows": [{"a": 1.0}]}, headers=bearer(READER)).status_code == 200
            assert client.post("/predict", json=body, headers=bearer(TEACHER)).status_code == 200
            if default is not None:
                assert "learned as 0 here" in refused.json()["error"]
                assert live.n_pending == 1


def test_an_id_belongs_to_a_token(tmp_path):
    with LiveModel(tmp_path / "live", regressor(), target="y") as live, client_of(live, tokens=TOKENS) as client:
        body = {"rows": [{"a": 1.0, "y": 2.0}], "id": "mine"}
        answers = [client.post("/learn", json=body, headers=bearer(token)) for token in (TEACHER, OTHER, TEACHER)]
        assert [answer.json()["repeated"] for answer in answers] == [False, False, True]
        assert live.rows == 2


def test_an_id_with_another_body_is_a_conflict(tmp_path):
    with LiveModel(tmp_path / "live", regressor(), target="y") as live, client_of(live) as client:
        body = {"rows": [{"a": 1.0, "y": 2.0}], "id": "one"}
        assert client.post("/learn", json=body).json()["learned"] == 1
        assert client.post("/learn", json=body).json()["repeated"]
        other = client.post("/learn", json={**body, "rows": [{"a": 9.0, "y": 2.0}]})
        assert other.status_code == 409
        assert "another body" in other.json()["error"]
        assert live.rows == 1


def test_ids_of_labels_and_of_waiting_rows_have_fingerprints_too(tmp_path):
    with LiveModel(tmp_path / "live", regressor()) as live:
        X = rows_of(2).drop_columns(["target"])
        live.remember(["a", "b"], X, id="rows")
        live.remember(["a", "b"], X, id="rows")
        with pytest.raises(IdTaken):
            live.remember(["a", "c"], X, id="rows")
        live.label(["a"], [1.0], id="labels")
        assert live.label(["a"], [1.0], id="labels").repeated
        with pytest.raises(IdTaken):
            live.label(["a"], [2.0], id="labels")


def test_strangers_leave_slots_to_the_known_and_all_leave_some_to_health():
    async def main():
        release, statuses = asyncio.Event(), []

        async def app(scope, receive, send):
            await release.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def ask(path, authorization=b""):
            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append((path, authorization, message["status"]))

            headers = [(b"host", b"x")] + ([(b"authorization", authorization)] if authorization else [])
            scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b""}
            await middleware(scope, None, send)

        middleware = RequestMiddleware(app, [], lambda *_: None, 20, None, lambda header: header == "good", 3)
        asked = [asyncio.create_task(ask("/openapi.json")) for _ in range(100)]
        await asyncio.sleep(0)
        asked += [asyncio.create_task(ask("/events", b"good")) for _ in range(5)]
        await asyncio.sleep(0)
        asked += [asyncio.create_task(ask("/predict", b"good")) for _ in range(30)]
        await asyncio.sleep(0)
        asked += [asyncio.create_task(ask("/healthz")) for _ in range(5)]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*asked)
        return {path: sum(status == 200 for each, _, status in statuses if each == path) for path, _, _ in statuses}

    taken = asyncio.run(main())
    assert taken == {"/openapi.json": 10, "/events": 3, "/predict": 7, "/healthz": 5}
    assert HEALTH_SLOTS >= 5
