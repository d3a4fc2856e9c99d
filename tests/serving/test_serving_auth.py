"""Who may pass: tokens, passwords, hosts and origins."""

import base64
import secrets

import pytest
from served import ADMIN, READER, TEACHER, TOKENS, friedman

from streamboost.serving import Tokens, read_tokens

ROUTES = {
    "/predict": ("POST", "predict"),
    "/learn": ("POST", "learn"),
    "/label": ("POST", "learn"),
    "/checkpoint": ("POST", "admin"),
    "/model": ("GET", "predict"),
    "/frozen": ("GET", "predict"),
    "/metrics": ("GET", "predict"),
    "/": ("GET", "predict"),
    "/healthz": ("GET", None),
    "/openapi.json": ("GET", None),
    "/dashboard/page.css": ("GET", None),
}


def basic(token, name="anyone"):
    return "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()


NO_TOKENS = [
    "",
    "Bearer x",
    "Bearer",
    f"Basic {ADMIN}",
    basic("x"),
    basic(f":{ADMIN}"),
    "Basic ä",
    f"Token {ADMIN}",
    ADMIN,
]


@pytest.mark.parametrize("path", ROUTES)
def test_each_route_opens_to_the_tokens_with_its_scope_and_to_no_other(guarded, path):
    method, scope = ROUTES[path]

    def status(said):
        headers = {"Authorization": said.encode()} if said else {}
        return guarded.client.request(method, path, headers=headers).status_code

    for token, scopes in TOKENS.items():
        is_open = scope is None or scope in scopes or "admin" in scopes
        for said in (f"Bearer {token}", f"bearer {token}", basic(token), basic(token, name="")):
            tried = status(said)
            assert (tried == 403) is not is_open
            assert tried != 401
    for said in NO_TOKENS:
        assert (status(said) == 401) is (scope is not None)


def test_without_a_token_or_its_scope_the_answer_says_what_to_send_and_changes_nothing(guarded):
    before = guarded.state()
    answer = guarded.post("/learn", json={"rows": friedman(3)})
    assert "the token is missing. Send the header Authorization: Bearer" in answer.json()["error"]
    bearer, password = answer.headers.get_list("www-authenticate")
    assert (bearer, password.startswith('Basic realm="')) == ("Bearer", True)
    answer = guarded.post("/learn", json={"rows": friedman(3)}, headers={"Authorization": f"Bearer {READER}"})
    assert "the token has the scopes predict, which do not open /learn." in answer.json()["error"]
    assert guarded.state() == before


def test_a_password_opens_the_events_too(guarded):
    for token, status in ((READER, 200), (TEACHER, 403), ("nonsense", 401)):
        with guarded.client.stream("GET", "/events", auth=("anyone", token)) as events:
            assert events.status_code == status


OWN = {"Sec-Fetch-Site": "same-origin"}
FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example", **OWN},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_of_other_sites_cannot_have_a_browser_post(guarded, settled, headers):
    """A browser sends a password that it knows, and speaks to this machine, whoever asks it to."""
    before = guarded.state(), settled.state()
    for served, password in ((settled, {}), (guarded, {"Authorization": basic(ADMIN)})):
        for path in ("/checkpoint", "/learn", "/label", "/predict"):
            answer = served.post(path, headers=headers | password)
            assert (answer.status_code, "another site" in answer.json()["error"]) == (403, True)
    assert (guarded.state(), settled.state()) == before
    assert guarded.post("/checkpoint", headers=headers | {"Authorization": f"Bearer {ADMIN}"}).status_code == 200


@pytest.mark.parametrize("site", [{}, OWN, {"Sec-Fetch-Site": "none"}])
def test_pages_of_this_server_and_programs_can_post(guarded, settled, site):
    for served, password in ((settled, {}), (guarded, {"Authorization": basic(ADMIN)})):
        for origin in ({}, {"Origin": served.running.url.rstrip("/")}):
            assert served.post("/checkpoint", headers=site | origin | password).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "",
        "127.0.0.1.evil.example:80",
        "[::2]:80",
        "[::1]evil",
        "[",
        "localhost:80@evil",
    ],
)
def test_a_name_that_is_not_this_machines_is_refused(settled, host):
    for path in ("/healthz", "/", "/predict"):
        answer = settled.get(path, headers={"Host": host})
        assert (answer.status_code, "Host header" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:80", "[::1]"])
def test_this_machines_own_names_are_fine_with_any_port(settled, host):
    assert settled.get("/healthz", headers={"Host": host}).status_code == 200


def test_every_answer_tells_browsers_to_be_careful(settled):
    for answer in (settled.get("/healthz"), settled.get("/"), settled.get("/nowhere"), settled.post("/predict")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


# The token file.

ONE, TWO = "a" * 32, "b" * 32


def test_a_token_file_has_a_token_and_its_scopes_a_line(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"# who\n\n{ONE} predict # the shop\n{TWO}   predict,learn\n{'c' * 16} admin\n")
    tokens = read_tokens(file)
    assert tokens.scopes_of(ONE) == {"predict"}
    assert tokens.scopes_of(TWO) == {"predict", "learn"}
    assert tokens.scopes_of("c" * 16) == {"predict", "learn", "admin"}
    assert tokens.scopes_of(ONE[:-1]) is None
    assert tokens.scopes_of(ONE + "a") is None
    assert tokens.scopes_of("") is None
    assert tokens.scopes_of("ü\udce4") is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no token"),
        (f"{ONE}\n", "line 1"),
        (f"# \n{ONE} predict learn\n", "line 2"),
        (f"{ONE} predict,eat\n", "'eat'"),
        ("short predict\n", "5 letters, expected at least 16"),
        (f"{ONE} predict\n{ONE} learn\n", "line 2: the token is there already"),
        (f"{'ü' * 20} predict\n", "no header"),
        (f"{ONE};x predict\n", "no header"),
    ],
)
def test_a_token_file_that_is_not_understood_is_refused_with_its_line_and_without_the_token(tmp_path, text, word):
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(ValueError, match="tokens") as caught:
        read_tokens(file)
    assert word in str(caught.value)
    assert ONE not in str(caught.value)


def test_every_token_is_compared_in_constant_time_whichever_is_right(monkeypatch):
    calls, compare = [], secrets.compare_digest
    monkeypatch.setattr(secrets, "compare_digest", lambda a, b: calls.append(b) or compare(a, b))
    tokens = Tokens({ONE: ["predict"], TWO: ["learn"]})
    for token in (ONE, TWO, "x"):
        calls.clear()
        tokens.scopes_of(token)
        assert calls == [ONE.encode(), TWO.encode()]
