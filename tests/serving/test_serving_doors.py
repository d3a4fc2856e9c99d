"""Who may pass: tokens, cookies, hosts and origins."""

import httpx
import pytest
from served import ADMIN, TEACHER, TOKENS, friedman

ROUTES = {
    "/predict": ("POST", "predict"),
    "/learn": ("POST", "learn"),
    "/label": ("POST", "learn"),
    "/checkpoint": ("POST", "admin"),
    "/model": ("GET", "predict"),
    "/metrics": ("GET", "predict"),
    "/healthz": ("GET", None),
    "/openapi.json": ("GET", None),
    "/dashboard/page.css": ("GET", None),
    "/login": ("GET", None),
}


@pytest.mark.parametrize("path", ROUTES)
def test_each_route_opens_to_the_tokens_with_its_scope_and_to_no_other(guarded, path):
    method, scope = ROUTES[path]

    def status(**headers):
        return guarded.client.request(method, path, headers=headers).status_code

    tried = {token: status(Authorization=f"Bearer {token}") for token in TOKENS}
    for token, scopes in TOKENS.items():
        is_open = scope is None or scope in scopes or "admin" in scopes
        assert (tried[token] == 403) is not is_open
        assert tried[token] != 401
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {ADMIN}"}, {"Authorization": ADMIN}):
        assert (status(**headers) == 401) is (scope is not None)


def test_without_a_token_the_answer_says_what_to_send_and_changes_nothing(guarded):
    before = guarded.state()
    answer = guarded.post("/learn", json={"rows": friedman(3)})
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in answer.json()["error"]
    assert guarded.state() == before


def test_a_browser_exchanges_a_token_for_a_cookie_that_opens_only_what_changes_nothing(guarded):
    with httpx.Client(base_url=guarded.running.url, timeout=180) as browser:
        assert browser.get("/").headers["location"] == "login"
        assert "password" in browser.get("/login").text
        for token, status in (("nonsense", 401), (TEACHER, 403)):
            refused = browser.post("/login", data={"token": token})
            assert (refused.status_code, "set-cookie" in refused.headers) == (status, False)
            assert token not in refused.text
        entered = browser.post("/login", data={"token": ADMIN}, headers={"Origin": guarded.running.url.rstrip("/")})
        assert (entered.status_code, entered.headers["location"]) == (303, "./")
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/").status_code == 200
        assert browser.get("/model").status_code == 200
        with browser.stream("GET", "/events") as events:
            assert events.status_code == 200
        assert browser.post("/checkpoint").status_code == 401


def test_whoever_has_no_token_yet_cannot_have_the_server_hold_more_than_one(guarded):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = guarded.post("/login", content=b"token=" + b"x" * 5000, headers=form)
    assert (answer.status_code, "4,096 bytes" in answer.json()["error"]) == (413, True)


def test_pages_of_other_sites_cannot_have_a_browser_post(guarded, settled):
    for origin in ("http://evil.example", "null", "http://["):
        assert settled.post("/checkpoint", headers={"Origin": origin}).status_code == 403
    assert settled.post("/checkpoint", headers={"Origin": settled.running.url.rstrip("/")}).status_code == 200
    headers = {"Origin": "http://elsewhere.example", "Authorization": f"Bearer {ADMIN}"}
    assert guarded.post("/checkpoint", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:80"])
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
