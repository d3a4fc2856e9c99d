"""schemathesis over the server's OpenAPI document: data that fit it and data that do not, all checks it has."""

import io
import math

import httpx
import pyarrow as pa
import pytest

schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, Phase, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from schemathesis.config import SchemathesisConfig  # noqa: E402

from streamboost import SGBClassifier, SGBRegressor  # noqa: E402
from streamboost.dashboard import Feed, serve_in_thread  # noqa: E402
from streamboost.live import LiveModel  # noqa: E402
from streamboost.serving import Limits, Tokens, create_app  # noqa: E402
from streamboost.serving.arrow_bodies import ARROW_TYPE  # noqa: E402
from streamboost.serving.openapi import document  # noqa: E402

TOKEN = "t" * 32
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SMALL = {"n_estimators": 2, "max_depth": 2, "memory": (64,), "new_columns": "grow", "random_state": 0}
EXAMPLES = 100
LIMITS = Limits(columns=12, classes=6, rows=50, body_seconds=300.0)
# A schema cannot say that a column holds one kind of value, that there are as many keys as rows, or what a model has
# learned so far: data that fit the schema may be refused for these.
FITTING = ["2xx", "3xx", "401", "403", "404", "409", "413", "422", "503"]
UNFITTING = ["400", "401", "403", "404", "405", "409", "413", "415", "422"]


def stream(columns):
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@st.composite
def streams(draw):
    n = draw(st.integers(1, 4))

    def column(values):
        return st.lists(values, min_size=n, max_size=n)

    numbers, texts = st.none() | st.floats(allow_infinity=True), st.none() | st.text(max_size=5)
    names = st.sampled_from(["a", "b", "y", "key"])
    return stream(draw(st.dictionaries(names, column(numbers) | column(texts), min_size=1)))


schemathesis.openapi.media_type(ARROW_TYPE, streams())  # other bytes: tests/serving/test_serving_bodies.py


@pytest.fixture(scope="module", params=[SGBRegressor, SGBClassifier])
def served(request, tmp_path_factory):
    """A server whose model has learned a little."""
    directory = tmp_path_factory.mktemp("fuzzed") / "m"
    feed, live = Feed(), LiveModel(directory, request.param(**SMALL), target="y", durable=False)
    app = create_app(live, feed=feed, tokens=Tokens({TOKEN: ["admin"]}), limits=LIMITS, hosts=None)
    with serve_in_thread(app, feed=feed) as running:
        with httpx.Client(base_url=running.url, headers=HEADERS, timeout=180) as client:
            rows = [{"a": i % 3, "b": "odd" if i % 2 else "even", "y": i % 2} for i in range(50)]
            assert client.post("/learn", json={"rows": rows}).status_code == 200
        yield running
    live.close()


CONFIG = SchemathesisConfig.from_dict(
    {
        "headers": HEADERS,
        "checks": {
            "positive_data_acceptance": {"expected-statuses": FITTING},
            "negative_data_rejection": {"expected-statuses": UNFITTING},
        },
        "generation": {"mode": "all", "max-examples": EXAMPLES},
    }
)
API = schemathesis.openapi.from_dict(document(LIMITS, has_tokens=True), config=CONFIG)


@API.exclude(path="/events").parametrize()  # which has no end; tests/serving/test_serving_monitoring.py reads it
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_every_answer_is_as_the_document_says(case, served):
    case.call_and_validate(base_url=served.url, headers=HEADERS, timeout=180)


def test_the_server_is_well_after_all_this_and_says_finite_numbers(served):
    with httpx.Client(base_url=served.url, headers=HEADERS, timeout=180) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        said = client.post("/predict", json={"row": {"a": 1}}).json()["predictions"][0]
        assert not isinstance(said, float) or math.isfinite(said)
