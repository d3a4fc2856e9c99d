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
from streamboost.serving.auth import Tokens, read_tokens
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


def test_a_token_expires_and_the_log_says_so_by_its_name(tmp_path, caplog):
    now = [1000.0]
    tokens = Tokens(
        {READER: ["predict"], TEACHER: ["learn"]},
        names={READER: "shop"},
        expires={READER: 2000.0},
        clock=lambda: now[0],
    )
    assert tokens.describe() == ["shop: predict, until 1970-01-01T00:33:20Z", "token 2: learn"]
    with LiveModel(tmp_path / "live", regressor(), target="y") as live, client_of(live, tokens=tokens) as client:
        live.learn(pa.table({"a": [1.0], "y": [2.0]}))
        assert client.get("/model", headers=bearer(READER)).status_code == 200
        now[0] = 2000.0
        for _ in range(3):
            refused = client.get("/model", headers=bearer(READER))
            assert (refused.status_code, "has expired" in refused.json()["error"]) == (401, True)
        assert client.get("/model", headers=bearer("x" * 20)).json()["error"].startswith("the token is not known")
    assert caplog.text.count("shop expired 1970-01-01T00:33:20Z") == 1
    assert READER not in caplog.text
    assert tokens.describe()[0] == "shop: predict, expired 1970-01-01T00:33:20Z"


def test_a_token_file_says_names_and_times(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(
        f"{READER} predict\n{TEACHER} learn name=ops expires=2027-06-30\n{OTHER} admin expires=2020-01-01\n"
    )
    tokens = read_tokens(path)
    assert tokens.describe() == [
        "token of line 1: predict",
        "ops: learn, until 2027-06-30T00:00:00Z",
        "token of line 3: admin, learn, predict, expired 2020-01-01T00:00:00Z",
    ]
    assert tokens.scopes_of(OTHER) is None
    for wrong in ("expires=soon", "until=2027-01-01", "name=", "expires"):
        path.write_text(f"{READER} predict {wrong}\n")
        with pytest.raises(ValueError, match="line 1") as caught:
            read_tokens(path)
        assert READER not in str(caught.value)
