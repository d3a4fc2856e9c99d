"""Servers that tests ask."""

import pytest
from served import SMALL, TOKENS, friedman, serving

from streamboost import SGBClassifier, SGBRegressor
from streamboost.serving import Limits, Tokens


@pytest.fixture
def regression(tmp_path):
    with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
        yield served


@pytest.fixture
def classes(tmp_path):
    with serving(tmp_path / "m", SGBClassifier(**SMALL)) as served:
        yield served


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """A server that has learned something, and rows that wait."""
    limits = Limits(rows=100, columns=20, body_bytes=20_000)
    with serving(tmp_path_factory.mktemp("settled"), SGBRegressor(**SMALL), limits=limits) as served:
        served.learn(friedman(50))
        served.post("/predict", json={"row": {"x0": 1.0}, "keys": ["waiting"]})
        served.catch_up()
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    options = {"tokens": Tokens(TOKENS), "hosts": None}
    with serving(tmp_path_factory.mktemp("guarded"), SGBRegressor(**SMALL), **options) as served:
        yield served
