"""The dashboard's page in a real browser: Debian's Chromium without a window, driven by Playwright."""

import os
import re
import socket
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from streamboost import SGBRegressor
from streamboost.dashboard import Feed, observe, serve_in_thread, write_page
from streamboost.live import LiveModel
from streamboost.serving import Tokens, create_app

routes_module = import_module("streamboost.dashboard.routes")  # the name in the package is a function's
CHROMIUM = Path("/usr/bin/chromium")
EVIL = "<img src=x onerror=\"document.title='owned'\">"
CHARTS = [
    "Error over time",
    "Whom the hedge trusts",
    "Edge of each learner",
    "Importance of columns",
    "Rows per second",
    "Latency of predictions",
    "Pending labels",
    "Quarantine",
]
LOST_LINE = r"net::ERR_(CONNECTION_\w+|EMPTY_RESPONSE|SOCKET_NOT_CONNECTED|INCOMPLETE_\w+)|503"  # when a server goes
PATIENCE = 180_000  # milliseconds, for a busy machine
PAINTED = """id => {
    const canvas = document.querySelector(`#${id} canvas`);
    if (canvas === null) return 0;
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let i = 3; i < pixels.length; i += 4) painted += pixels[i] > 0;
    return painted;
}"""


PICTURE = "id => document.querySelector(`#${id} canvas`).toDataURL()"
ACCENT = """id => {  // how many columns of pixels hold the colour of the line
    const canvas = document.querySelector(`#${id} canvas`);
    const { width, height } = canvas;
    const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    const columns = new Set();
    for (let i = 0; i < pixels.length; i += 4)
        if (pixels[i] === 194 && pixels[i + 1] === 65 && pixels[i + 2] === 12) columns.add((i / 4) % width);
    return columns.size;
}"""


def missing(reason):
    """Skip, but not where everything has to be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed. Run: make test-all")
    if not CHROMIUM.exists():
        missing(f"there is no {CHROMIUM}. Run: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"], timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture
def watch(browser):
    """Open pages that note every complaint and every request that leaves the machine."""
    contexts, complaints = [], []

    def open_page(url, **options):
        context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(f"page: {error}"))
        page.on("console", lambda said: complaints.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("request", lambda request: _note_foreign(request.url, url, complaints))
        page.goto(url)
        return page

    def _note_foreign(asked, url, complaints):
        if not asked.startswith((url.rsplit("/", 1)[0], "data:")):
            complaints.append(f"request: {asked}")

    yield open_page
    for context in contexts:
        context.close()
    unexpected = [one for one in complaints if not re.search(LOST_LINE, one)]
    assert unexpected == []


def observation(rows, *, columns=("price", "demand", "hour"), events=(), **more):
    """What a run at this row could look like, without the run."""
    wave = (rows / 1000) % 1
    seen = observe(
        None,
        rows=rows,
        running={"accuracy": 0.9 + rows * 1e-7, "log_loss": 0.3},
        windowed={"accuracy": 0.8 + 0.1 * wave, "log_loss": 0.2 + 0.1 * wave},
        rows_per_second=9000 + 1000 * wave,
        latency_ms={"p50": 0.5, "p99": 2.0 + wave},
        events=events,
        pending=int(300 * wave),
        quarantined=rows // 2000,
        time=1_767_000_000 + rows,
    )
    seen["edges"] = [
        {"memory": memory, "learners": n, "edges": [0.3 * wave - 0.02 * i for i in range(n)]}
        for memory, n in ((16384, 12), (256, 4))
    ]
    seen["weights"] = [
        {"memory": 16384, "learners": 12, "weight": 0.75 - wave / 2},
        {"memory": 256, "learners": 4, "weight": 0.25 + wave / 2},
    ]
    seen["importances"] = {column: (0.5, 0.3, 0.2)[i] for i, column in enumerate(columns)}
    return seen | more


def filled(n=40, step=250, **about):
    feed = Feed("prices", {"source": "prices.csv", "target": "rises", **about})
    for i in range(1, n + 1):
        feed.publish(observation(step * i, events=[(step * i, "memory dropped", "100 of 200 rows")] if i == 20 else []))
    return feed


def wait_for_rows(page, rows):
    page.wait_for_function("rows => document.querySelector('#number-rows .number')?.textContent === rows", arg=rows)


def test_the_page_waits_kindly_then_fills_while_rows_arrive(watch):
    feed = Feed("prices", {"target": "rises"})
    with serve_in_thread(feed) as running:
        page = watch(running.url)
        page.wait_for_selector("body[data-state=live]")
        assert "Waiting for the first rows" in page.inner_text("#empty")
        assert not page.is_visible("#filled")
        page.wait_for_function("() => document.title === 'prices'")
        assert page.inner_text("#about") == "target\nrises"
        for i in range(1, 6):
            feed.publish(observation(250 * i))
        wait_for_rows(page, "1,250")
        charts = ("error", "weights", "edges", "importances", "speed", "latency", "pending", "quarantine")
        before = {chart: page.evaluate(PICTURE, chart) for chart in charts}
        assert min(page.evaluate(ACCENT, chart) for chart in ("error", "speed", "pending")) > 100
        for i in range(6, 41):
            feed.publish(observation(250 * i))
        wait_for_rows(page, "10,000")
        assert not page.is_visible("#empty")
        assert all(page.evaluate(PICTURE, chart) != before[chart] for chart in charts)
        assert min(page.evaluate(ACCENT, chart) for chart in ("error", "speed", "pending", "quarantine")) > 100


def test_the_numbers_and_summaries_are_those_that_were_published(watch):
    feed = filled(39)
    last = observation(10_000)
    feed.publish(last)
    with serve_in_thread(feed) as running:
        page = watch(running.url)
        wait_for_rows(page, "10,000")
        text = lambda selector: page.inner_text(selector).replace("\xa0", " ")  # noqa: E731
        assert text("#number-speed .number") == "9,000"
        assert text("#number-metric-accuracy") == "Accuracy lately\n0.8\n0.901 over all rows"
        assert text("#number-latency") == "Latency p50\n0.5 ms\np99 2 ms"
        assert text("#number-quarantine .number") == "5"
        assert text("#error-summary") == "Accuracy 0.8 lately, 0.901 over all rows."
        assert text("#weights-summary").startswith("Most trusted: 16,384 rows · 12 learners, 75 % of the vote.")
        assert text("#importances-summary") == "price accounts for 50 % of how far predictions move, demand 30 %."
        assert re.search(r"Of 16 learners, 0 earn an edge above 0\.01, 14 do harm", text("#edges-summary"))
        assert text("#pending-summary") == "0 rows wait for a label."
        assert "memory dropped: 1" in text("#events-summary")
        assert text("#events tbody tr").startswith("5,000\t")
        assert [row.inner_text().split()[0] for row in page.query_selector_all("#importances-bars tr")] == [
            "price",
            "demand",
            "hour",
        ]
        page.select_option("#metric", "log_loss")
        assert text("#error-summary") == "Log loss 0.2 lately, 0.3 over all rows."


def test_every_chart_has_a_name_a_summary_and_paint(watch):
    with serve_in_thread(filled()) as running:
        page = watch(running.url)
        wait_for_rows(page, "10,000")
        for name in CHARTS:
            chart = page.get_by_role("slider", name=name, exact=True)
            assert chart.count() == 1
            assert chart.get_attribute("tabindex") == "0"
            assert chart.get_attribute("aria-valuetext").startswith("now, ")
            described = chart.get_attribute("aria-describedby")
            assert len(page.inner_text(f"#{described}")) > 10
            assert page.evaluate(PAINTED, chart.get_attribute("id")) > 500
        assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
        assert page.get_by_role("contentinfo").count() == 1
        assert page.get_by_role("heading", level=1).inner_text() == "prices"
        assert page.get_by_role("status").inner_text() == "live"
        assert page.get_by_role("combobox", name="Metric").count() == 1
        assert page.get_by_role("img", name=re.compile("^Colours: from")).count() == 1
        unnamed = page.evaluate(
            "[...document.querySelectorAll('section, button, select')].filter(e => !e.textContent.trim()).length"
        )
        assert unnamed == 0


def test_the_arrow_keys_move_a_line_that_all_charts_share(watch):
    with serve_in_thread(filled()) as running:
        page = watch(running.url)
        wait_for_rows(page, "10,000")
        error, weights, edges = (page.locator(f"#{name}") for name in ("error", "weights", "edges"))
        error.focus()
        page.keyboard.press("ArrowLeft")
        assert "row 9,750" in page.inner_text("#error-legend")
        assert error.get_attribute("aria-valuetext").startswith("row 9,750, all rows 0.901, lately 0.875")
        assert weights.get_attribute("aria-valuenow") == "9750"
        page.keyboard.press("Home")
        assert weights.get_attribute("aria-valuenow") == "250"
        page.keyboard.press("Escape")
        assert "now" in page.inner_text("#error-legend")
        page.get_by_role("button", name="5,000").click()
        assert "row 5,000" in page.inner_text("#speed-legend")
        assert "memory dropped" in page.inner_text("#error-legend")
        edges.focus()
        for _ in range(12):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#edges-legend").startswith("Learner 1 of memory 256 rows: edge 0.225")


def test_the_mouse_moves_it_too_and_tells_the_learner_below(watch):
    with serve_in_thread(filled()) as running:
        page = watch(running.url)
        wait_for_rows(page, "10,000")
        box = page.locator("#edges .u-over").bounding_box()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 3)
        page.wait_for_selector("#edges-legend >> text=Learner 1 of memory 16,384 rows")
        assert page.locator("#importances").get_attribute("aria-valuenow") == "5000"


@pytest.fixture
def held_port():
    """A port that is bound, while nobody listens: no other process is given it when a server leaves it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_the_page_comes_back_after_the_server_does_and_forgets_what_the_old_one_said(watch, monkeypatch, held_port):
    monkeypatch.setattr(routes_module, "RETRY_MS", 200)
    running = serve_in_thread(filled(), port=held_port)
    page = watch(running.url)
    wait_for_rows(page, "10,000")
    assert page.inner_text("#state") == "live"
    running.close()
    page.wait_for_selector("body[data-state=reconnecting]")
    assert page.inner_text("#state") == "reconnecting"
    assert page.inner_text("#number-rows .number") == "10,000"
    feed = Feed("prices again")
    feed.publish(observation(500))
    with serve_in_thread(feed, port=held_port):
        page.wait_for_selector("body[data-state=live]")
        wait_for_rows(page, "500")
        feed.publish(observation(750))
        wait_for_rows(page, "750")
        assert page.inner_text("h1") == "prices again"
        assert page.get_attribute("body", "data-observations") == "2"


def test_a_server_that_refuses_for_a_while_is_asked_again(watch, monkeypatch):
    from starlette.applications import Starlette
    from starlette.routing import Route

    from streamboost.dashboard import routes

    monkeypatch.setattr(routes_module, "RETRY_MS", 200)
    feed = filled()
    is_ill, refused = [False], []
    page_route, file_route, events_route = routes(feed)

    async def events(request):
        if not is_ill[0]:
            return await events_route.endpoint(request)
        refused.append(request)
        return PlainTextResponse("ill", status_code=503)

    with serve_in_thread(Starlette(routes=[page_route, file_route, Route("/events", events)]), feed=feed) as running:
        page = watch(running.url)
        wait_for_rows(page, "10,000")
        is_ill[0] = True
        feed.disconnect()
        page.wait_for_selector("body[data-state=reconnecting]")
        while len(refused) < 2:  # the browser itself gives up at the first 503
            page.wait_for_timeout(50)
        is_ill[0] = False
        page.wait_for_selector("body[data-state=live]")


def test_a_run_that_ends_is_shown_as_ended_even_when_its_server_goes(watch):
    feed = filled()
    running = serve_in_thread(feed)
    page = watch(running.url)
    wait_for_rows(page, "10,000")
    feed.end()
    page.wait_for_selector("body[data-state=ended]")
    running.close()
    page.wait_for_timeout(1000)
    assert page.inner_text("#state") == "ended"


def test_a_long_run_takes_no_more_room_in_the_page_than_in_the_feed(watch):
    feed = filled(2)
    with serve_in_thread(feed) as running:
        page = watch(running.url)
        page.wait_for_selector("body[data-state=live]")
        for i in range(3, 2001):
            feed.publish(observation(250 * i, events=[(250 * i, "new column", f"x{i}")] if i % 3 == 0 else []))
            if i % 50 == 0:
                page.wait_for_timeout(10)
        wait_for_rows(page, "500,000")
        history = feed.history()
        assert int(page.get_attribute("body", "data-observations")) == len(history["observations"]) <= 600
        assert int(page.get_attribute("body", "data-events")) == len(history["events"]) == 500
        page.reload()
        wait_for_rows(page, "500,000")
        assert int(page.get_attribute("body", "data-observations")) == len(history["observations"])


def test_a_run_that_goes_back_to_a_checkpoint_tells_its_events_once_in_the_page_too(watch):
    feed = filled(2)
    with serve_in_thread(feed) as running:
        page = watch(running.url)
        page.wait_for_selector("body[data-state=live]")
        for rows, happened in (
            (750, [700]),
            (1000, [750, 900]),
            (1250, [1100]),
            (800, [750]),
            (1000, [900]),
            (2000, []),
        ):
            feed.publish(observation(rows, events=[(row, "new class", str(row)) for row in happened]))
        wait_for_rows(page, "2,000")
        shown = page.locator("#events tbody tr").all_inner_texts()
        assert [int(re.search(r"[0-9,]+", row)[0].replace(",", "")) for row in shown] == [900, 750, 700]
        assert [event["row"] for event in feed.history()["events"]] == [700, 750, 900]


@pytest.mark.parametrize("width", [320, 400, 900, 1600])
def test_nothing_has_to_be_scrolled_sideways(watch, width):
    feed = filled(model="SGBClassifier" * 20)
    feed.publish(observation(11_000, columns=("a_column_with_a_name_of_quite_unreasonable_length" * 3, "b", "c")))
    with serve_in_thread(feed) as running:
        page = watch(running.url, viewport={"width": width, "height": 800})
        wait_for_rows(page, "11,000")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.evaluate(
            "[...document.querySelectorAll('.panel, .panel *')].filter(e => !e.closest('.uplot, .hidden, .scroll'))"
            ".filter(e => e.getBoundingClientRect().right > innerWidth).length"
        )
        assert wide == 0


def test_the_page_is_dark_where_the_system_is_and_a_choice_is_remembered(watch):
    background = "getComputedStyle(document.body).backgroundColor"
    pixel = """() => [...document.querySelector('#edges canvas').getContext('2d').getImageData(120, 60, 1, 1).data]"""
    with serve_in_thread(filled()) as running:
        dark = watch(running.url, color_scheme="dark")
        light = watch(running.url, color_scheme="light")
        for page in (dark, light):
            wait_for_rows(page, "10,000")
        assert dark.evaluate(background) == "rgb(11, 18, 32)"
        assert light.evaluate(background) == "rgb(241, 245, 249)"
        assert dark.evaluate(pixel) != light.evaluate(pixel)
        toggle = light.get_by_role("button", name="Dark")
        assert toggle.get_attribute("aria-pressed") == "false"
        toggle.click()
        assert light.evaluate(background) == "rgb(11, 18, 32)"
        light.wait_for_function(
            f"expected => JSON.stringify(({pixel})()) === expected", arg=str(dark.evaluate(pixel)).replace(" ", "")
        )
        light.reload()
        wait_for_rows(light, "10,000")
        assert toggle.get_attribute("aria-pressed") == "true"
        assert light.evaluate(background) == "rgb(11, 18, 32)"


def test_who_wants_no_motion_gets_none(watch):
    feed = filled()
    running = serve_in_thread(feed)
    pages = [watch(running.url, reduced_motion=motion) for motion in ("reduce", "no-preference")]
    for page in pages:
        wait_for_rows(page, "10,000")
    running.close()
    for page in pages:
        page.wait_for_selector("body[data-state=reconnecting]")
    names = [page.evaluate("getComputedStyle(document.querySelector('.lamp')).animationName") for page in pages]
    assert names == ["none", "breathe"]


def evil_feed():
    feed = Feed(EVIL, {EVIL: EVIL})
    for i in range(1, 11):
        seen = observation(100 * i, columns=(EVIL, "<b>bold</b>", "__proto__"), events=[(100 * i, EVIL, EVIL)])
        seen["metrics"] = {EVIL: {"running": 0.5, "windowed": 0.4}, "constructor": {"running": 1.0, "windowed": 1.0}}
        feed.publish(seen)
    return feed


def check_harmless(page):
    wait_for_rows(page, "1,000")
    assert page.evaluate("document.querySelectorAll('img, b').length") == 0
    assert page.title() == EVIL
    assert page.inner_text("h1") == EVIL
    assert EVIL in page.inner_text("#about")
    assert EVIL in page.inner_text("#events tbody tr")
    assert page.inner_text("#importances-bars th") == EVIL
    assert EVIL in page.inner_text("#error-summary") or EVIL.capitalize() in page.inner_text("#error-summary")
    assert page.eval_on_selector("#metric", "select => select.options[0].text") == EVIL


def test_names_labels_and_details_are_shown_as_text(watch):
    with serve_in_thread(evil_feed()) as running:
        check_harmless(watch(running.url))


def test_the_page_written_to_a_file_opens_by_itself_and_says_that_it_ended(watch, tmp_path):
    page = watch(write_page(filled(), tmp_path / "report.html").as_uri())
    wait_for_rows(page, "10,000")
    assert page.inner_text("#state") == "ended"
    for name in ("error", "weights", "edges", "importances", "speed"):
        assert page.evaluate(PAINTED, name) > 500
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(11, 18, 32)"
    check_harmless(watch(write_page(evil_feed(), tmp_path / "evil.html").as_uri()))


def test_a_model_with_little_to_tell_leaves_sentences_instead_of_empty_charts(watch):
    feed = Feed()
    feed.publish(observe(None, rows=5, running={}, windowed={}, rows_per_second=None))
    with serve_in_thread(feed) as running:
        page = watch(running.url)
        wait_for_rows(page, "5")
        for name in ("error", "weights", "edges", "importances", "speed", "latency", "pending"):
            assert not page.is_visible(f"#{name}")
            assert len(page.inner_text(f"#{name}-summary")) > 10
        assert not page.is_visible("#metric")
        assert "Nothing so far" in page.inner_text("#events-summary")


@pytest.fixture
def guarded(tmp_path):
    """A server of a model that asks for tokens, and what posts rows to it."""
    token = "t" * 20
    feed, live = Feed("guarded"), LiveModel(tmp_path / "m", SGBRegressor(n_estimators=4, random_state=0), target="y")
    app = create_app(live, feed=feed, tokens=Tokens({token: ["admin"], "r" * 20: ["learn"]}))

    def learn(rows):
        body = {"rows": [{"a": i % 7, "y": i % 3} for i in range(rows)]}
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.post(running.url + "learn", json=body, headers=headers, timeout=180).status_code == 200

    with live, serve_in_thread(app, feed=feed) as running:
        yield running, {"username": "anyone", "password": token}, learn


def test_a_browser_that_was_told_a_token_watches_a_guarded_server_learn(watch, guarded):
    running, credentials, learn = guarded
    page = watch(running.url, http_credentials=credentials)
    page.wait_for_selector("body[data-state=live]")
    for rows in ("300", "600"):
        learn(300)
        wait_for_rows(page, rows)
    assert page.inner_text("#state") == "live"
    assert page.evaluate(PAINTED, "error") > 500


def test_a_browser_without_the_token_sees_nothing(browser, guarded):
    running, credentials, _ = guarded
    for password, status in (("x" * 20, 401), ("r" * 20, 403)):
        context = browser.new_context(http_credentials=credentials | {"password": password})
        page = context.new_page()
        for path in ("", "events", "metrics"):
            assert page.goto(running.url + path, timeout=PATIENCE).status == status
        assert page.locator("main").count() == 0
        context.close()


def test_pages_of_other_sites_cannot_use_a_token_that_the_browser_knows(watch, guarded):
    running, credentials, _ = guarded
    page = watch(running.url, http_credentials=credentials)
    page.wait_for_selector("body[data-state=live]")
    post = "url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include'}).then(answer => answer.status)"
    assert page.evaluate(post, running.url + "checkpoint") == 200, "the page itself could"
    with serve_in_thread(PlainTextResponse("evil")) as evil:  # which has no policy that forbids it
        for name in (
            "127.0.0.1",
            "localhost",
        ):  # to the first, another port of this machine, the password is sent along
            other = page.context.new_page()
            other.goto(evil.url.replace("127.0.0.1", name), timeout=PATIENCE)
            assert other.evaluate(post, running.url + "checkpoint") == 0, "it must not even see the answer"
    told = page.evaluate("fetch('metrics').then(answer => answer.text())")
    counts = dict(re.findall(r'seconds_count{route="/checkpoint",status="(\d+)"} ([\d.]+)', told))
    assert counts == {"200": "1.0", "403": "2.0"}


def test_the_partitions_of_a_run_are_a_table_and_without_any_there_is_none(watch):
    feed = Feed("spread")
    feed.publish(observation(500))
    with serve_in_thread(feed) as running:
        page = watch(running.url)
        wait_for_rows(page, "500")
        assert page.locator("#partitions-panel").is_hidden()
        partitions = [{"partition": 0, "rows": 12_345, "node": EVIL}, {"partition": 1, "rows": 9, "restarts": 2}]
        feed.publish(observation(750) | {"partitions": observe(None, **NOTHING, partitions=partitions)["partitions"]})
        wait_for_rows(page, "750")
        table = page.get_by_role("region", name="Partitions")
        assert table.get_by_role("columnheader").all_inner_texts() == ["partition", "rows", "node", "restarts"]
        cells = table.get_by_role("cell").all_inner_texts()
        assert cells == ["0", "12,345", EVIL, "–", "1", "9", "–", "2"]


NOTHING = {"rows": 0, "running": {}, "windowed": {}, "rows_per_second": None}
