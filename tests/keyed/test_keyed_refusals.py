"""What one model per key refuses, and what fails on the way: nothing is changed."""

from __future__ import annotations

import errno
import os
import signal
import threading

import numpy as np
import pyarrow as pa
import pytest
from keyed_streams import TINY, fitted_prior, frame, shared_stream, states, stream, tiny

from streamboost import KeyedModel, SGBClassifier, SGBRegressor
from streamboost.keyed import store
from streamboost.persistence.object_graph import same_state

BAD = [
    ([{"key": "u", "x": 1.0}, {"x": 2.0}], [1.0, 2.0], "row 1 has no key: its 'key' is None"),
    (pa.table({"key": ["u", "v", None], "x": [1.0, 2.0, 3.0]}), [1.0] * 3, "row 2 has no key"),
    (pa.table({"key": [1.0, float("nan")], "x": [1.0, 2.0]}), [1.0] * 2, "row 1 has no key"),
    (pa.table({"key": pa.nulls(2), "x": [1.0, 2.0]}), [1.0] * 2, "row 0 has no key"),
    ([{"key": "u", "x": 1.0}, {"key": 1.5, "x": 2.0}], [1.0, 2.0], "'key' of row 1 is no key: 1.5 is a float"),
    (pa.table({"key": [[1], [2]], "x": [1.0, 2.0]}), [1.0] * 2, "key"),
    (pa.table({"x": [1.0]}), [1.0], "there is no key column 'key'"),
    (pa.table([[1], [2], [1.0]], names=["key", "key", "x"]), [1.0], "there are 2 columns called 'key'"),
    (pa.table({"key": ["u", "v"], "x": [1.0, 2.0]}), [1.0], "y has 1 rows and X has 2"),
    (pa.table({"key": ["u", "v"], "x": [1.0, 2.0]}), ["one", "two"], "not a number"),
    (pa.table({"key": ["u", "v", "u"], "x": [1.0, 2.0, np.inf]}), [1.0] * 3, "row 2: the model of key 'u' refuses it"),
    (pa.table({"key": ["u", "v", "w"], "x": [1.0, 2.0, 3.0]}), [1.0, np.nan, 1.0], "row 1: the model of key 'v'"),
    (pa.table({"key": ["w", "v", "w"], "x": [1.0, 2.0, 3.0]}), [1.0, np.nan, np.nan], "row 1: the model of key 'v'"),
    (pa.table({"key": ["u", "new"], "x": ["text", "text"]}), [1.0] * 2, "row 0: the model of key 'u' refuses it"),
    (pa.table({"key": ["new", "u"], "z": [1.0, 2.0]}), [1.0] * 2, "row 1: the model of key 'u' refuses it"),
    (np.ones((2, 2)), [1.0] * 2, "expected a frame, an Arrow table or a list of dicts"),
]


@pytest.fixture(scope="module")
def prior():
    return fitted_prior()


@pytest.mark.parametrize(("X", "y", "words"), BAD)
def test_a_chunk_with_a_bad_row_is_refused_as_a_whole(X, y, words):
    model = KeyedModel(tiny("regression"), key="key")
    good = pa.table({"key": ["u", "v", "w"] * 5, "x": np.arange(15.0)})
    model.learn(good, np.arange(15.0))
    before = states(model)
    with pytest.raises((TypeError, ValueError), match=words):
        model.learn(X, y)
    assert states(model) == before
    model.learn(good, np.arange(15.0))  # and goes on
    assert model.rows("u") == 10


@pytest.mark.parametrize("kind", ["dicts", "pandas", "table"])
def test_a_first_chunk_with_a_row_without_a_key_leaves_everything_as_it_was(kind):
    keys, columns, y = stream(30, text=False)
    keys = [str(key) for key in keys]
    model, undisturbed = (KeyedModel(tiny("regression"), key="key") for _ in range(2))
    rows = frame([*keys[:28], None, keys[29]], columns, "dicts", range(30))
    if kind != "dicts":
        rows = pa.Table.from_pylist(rows, schema=pa.schema({"key": pa.string(), "a": pa.float64()}))
    with pytest.raises(ValueError, match=r"row 28 has no key.*Nothing was changed"):
        model.learn(rows.to_pandas() if kind == "pandas" else rows, y)
    assert model.n_keys == 0
    for one in (model, undisturbed):
        one.learn(frame(keys, columns, "dicts", range(30)), y)
    assert states(model) == states(undisturbed)


def test_a_label_of_another_kind_is_refused():
    model = KeyedModel(tiny("classification"), key="key")
    model.learn([{"key": 1, "x": 0.0}, {"key": 2, "x": 1.0}], ["up", "down"])
    before = states(model)
    with pytest.raises(ValueError, match="labels so far were of kind"):
        model.learn([{"key": 1, "x": 0.0}, {"key": 3, "x": 1.0}], [5, 6])
    assert states(model) == before
    assert model.classes_.tolist() == ["up", "down"]


def test_options_that_do_not_fit_are_refused_with_the_first_rows():
    model = KeyedModel(SGBRegressor(budget=-1.0), key="key")
    with pytest.raises(ValueError, match="budget is -1"):
        model.learn([{"key": i, "x": 0.0} for i in range(8)], np.arange(8.0))
    assert model.n_keys == 0


class _Failing:
    """Lets the n-th model that learns fail, before or after it has learned."""

    def __init__(self, monkeypatch, n: int, error: BaseException, *, after: bool) -> None:
        self.left, learn = n, SGBRegressor._learn_prepared

        def fail(model, *args):
            self.left -= 1
            if self.left == 0 and not after:
                raise error
            said = learn(model, *args)
            if self.left == 0:
                args[-1] is None or args[-1].restore()  # as an estimator that fails on the way does itself
                raise error
            return said

        monkeypatch.setattr(SGBRegressor, "_learn_prepared", fail)


@pytest.mark.parametrize("error", [FloatingPointError("not finite"), MemoryError("80 GiB"), SystemExit(3)])
@pytest.mark.parametrize("rows_a_key", [1, 6])
@pytest.mark.parametrize("after", [False, True])
def test_a_model_that_fails_after_all_checks_takes_all_others_back(monkeypatch, error, rows_a_key, after):
    n = 6 * rows_a_key
    rows, y = [{"key": i % 6, "x": float(i), "z": float(i % 5)} for i in range(n)], np.arange(float(n))
    model = KeyedModel(tiny("regression"), key="key", hot=3)
    for _ in range(8):
        model.learn(rows[: 4 * rows_a_key], y[: 4 * rows_a_key])  # some keys are new then
    before = states(model), model.n_samples_seen_, model.keys()
    with monkeypatch.context() as patch:
        _Failing(patch, 5, error, after=after)
        with pytest.raises(type(error)):
            model.learn(rows, y)
    assert (states(model), model.n_samples_seen_, model.keys()) == before
    twin = KeyedModel(tiny("regression"), key="key")
    for _ in range(8):
        twin.learn(rows[: 4 * rows_a_key], y[: 4 * rows_a_key])
    assert model.learn(rows, y).tolist() == twin.learn(rows, y).tolist()
    assert states(model) == states(twin)


def test_ctrl_c_waits_for_the_end_of_the_chunk(monkeypatch):
    learn, came = SGBRegressor._learn_prepared, []

    def interrupted(model, *args):
        if not came:
            came.append(os.kill(os.getpid(), signal.SIGINT))
        return learn(model, *args)

    monkeypatch.setattr(SGBRegressor, "_learn_prepared", interrupted)
    model = KeyedModel(tiny("regression"), key="key")
    with pytest.raises(KeyboardInterrupt):
        model.learn([{"key": i, "x": float(i)} for i in range(9)], np.arange(9.0))
    assert model.n_samples_seen_ == model.n_keys == 9


def test_whoever_predicts_meanwhile_meets_whole_chunks():
    rows = [{"key": i, "x": 1.0} for i in range(20)]
    model, seen, done = KeyedModel(tiny("regression"), key="key", hot=4), [], threading.Event()

    def look():
        while not done.is_set():
            seen.append({round(said, 9) for said in model.predict(rows).tolist()})

    thread = threading.Thread(target=look)
    thread.start()
    for i in range(30):
        model.learn(rows, np.full(20, float(i)))
    done.set()
    thread.join()
    assert len(seen) > 3
    assert all(len(one) == 1 for one in seen)  # all keys have learned the same


def test_a_full_disk_is_told_and_costs_nothing(monkeypatch):
    rows, y = [{"key": i, "x": float(i)} for i in range(6)], np.arange(6.0)
    model, twin = KeyedModel(tiny("regression"), key="key", hot=2), KeyedModel(tiny("regression"), key="key")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    said = []
    with monkeypatch.context() as patch:
        patch.setattr(store._File, "append", full)
        said.append(model.learn(rows, y).tolist())
        with pytest.raises(OSError, match="No space left"):
            model.learn(rows, y)
    said.append(model.learn(rows, y).tolist())
    assert said == [twin.learn(rows, y).tolist() for _ in range(2)]
    assert states(model) == states(twin)
    assert model.n_hot <= 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": 3}, "key is 3, expected the name of a column"),
        ({"hot": 0}, "hot is 0"),
        ({"model": KNOWN} if (KNOWN := SGBRegressor(**TINY).fit([[0.0]], [1.0])) else {}, "has learned rows already"),
        ({"model": object()}, "model is a object, expected an SGBRegressor"),
        ({"prior": SGBRegressor()}, "expected an SGBRegressor or SGBClassifier that has learned rows"),
        ({"prior": KNOWN, "model": SGBClassifier()}, "expected two of a kind"),
        ({"model": SGBRegressor(learner=np.sin)}, "model cannot be stored"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        KeyedModel(**{"key": "key", **options})


def test_probabilities_are_refused_where_there_are_none():
    for model in (KeyedModel(key="key"), KeyedModel(SGBClassifier(loss="hinge"), key="key")):
        assert not hasattr(model, "predict_proba")
        with pytest.raises(ValueError, match="method is 'predict_proba'"):
            model.learn([{"key": 1, "x": 1.0}], [1.0], method="predict_proba")


def test_a_row_that_cannot_be_predicted_is_named(prior):
    X, y = shared_stream(6, 60, seed=10)
    bad = X.set_column(2, "a", pa.array(np.where(np.arange(60) == 41, np.inf, X["a"].to_numpy())))
    for given_prior, who in (
        (None, f"the model of key {X['key'][41].as_py()!r} refuses it"),
        (prior, "column 'a' is inf"),
    ):
        model = KeyedModel(key="key", prior=given_prior)
        model.learn(X, y)
        before = states(model)
        for act in (lambda: model.predict(bad), lambda: model.learn(bad, y), lambda: model.check_rows(bad)):  # noqa: B023
            with pytest.raises(ValueError, match=f"row 41: {who}"):
                act()
        assert states(model) == before


def test_what_a_model_is_alone_is_what_a_copy_of_it_is():
    model = KeyedModel(tiny("regression"), key="key")
    model.learn([{"key": 1, "x": float(i)} for i in range(50)], np.arange(50.0))
    copy = model.model(1)
    copy.learn([{"x": 1.0}], [2.0])
    assert not same_state(copy, model.model(1))
    assert model.rows(1) == 50
