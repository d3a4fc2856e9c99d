"""Sparse matrices: the same model as from the same rows dense, without all of them dense at once."""

import copy
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from streamboost import SGBClassifier, SGBRegressor
from streamboost.features import sparse_rows
from streamboost.features.encoder import Encoder
from streamboost.persistence.object_graph import same_state
from streamboost.prequential import prequential

SMALL = {"n_estimators": 5, "max_depth": 3, "memory": (64, 256), "random_state": 0}
FORMATS = [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.csc_array, sp.coo_array, sp.dok_array]


@pytest.fixture
def rows(monkeypatch):
    """Rows with many zeros, some missing values and a column that has none at first; blocks hold seven of them."""
    monkeypatch.setattr(sparse_rows, "BLOCK_BYTES", 7 * 8 * 6)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * (rng.uniform(size=(300, 6)) < 0.3) + 0.0  # no -0.0
    y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=300)
    X[rng.uniform(size=300) < 0.1, 2] = X[:50, 3] = np.nan
    return X, y


@pytest.mark.parametrize("sparse", FORMATS)
def test_every_format_makes_the_model_of_the_same_rows_dense(sparse, rows):
    X, y = rows
    dense, ours = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    np.testing.assert_array_equal(ours.learn(sparse(X[:200]), y[:200]), dense.learn(X[:200], y[:200]))
    ours.partial_fit(sparse(X[200:]), y[200:])
    dense.partial_fit(X[200:], y[200:])
    assert same_state(ours, dense)
    np.testing.assert_array_equal(ours.predict(sparse(X)), dense.predict(X))
    np.testing.assert_array_equal(ours.encode(sparse(X)), X)
    for one, other in zip(ours.staged_predict(sparse(X)), dense.staged_predict(X), strict=True):
        np.testing.assert_array_equal(one, other)
    assert same_state(ours.fit(sparse(X), y), dense.fit(X, y))


@pytest.mark.parametrize("loss", ["log_loss", "logistic", "hinge"])
def test_classes_that_come_on_the_way_are_learned_alike(loss, rows):
    X, y = rows
    labels = np.array(["low", "mid", "high"])[np.digitize(y, [-1, 1])]
    dense, ours = SGBClassifier(loss, **SMALL), SGBClassifier(loss, **SMALL)
    method = "decision_function" if loss == "hinge" else "predict_proba"
    before = ours.learn(sp.csr_array(X), labels, method=method)
    np.testing.assert_array_equal(before, dense.learn(X, labels, method=method))
    assert same_state(ours, dense)
    np.testing.assert_array_equal(getattr(ours, method)(sp.coo_array(X)), getattr(dense, method)(X))


@pytest.mark.parametrize("update_mode", ["minibatch", 4, 100])
def test_rows_that_share_a_step_stay_together(update_mode, rows):
    X, y = np.nan_to_num(rows[0]), rows[1]
    dense, ours = (
        SGBRegressor(**SMALL, update_mode=update_mode).partial_fit(made(X), y) for made in (np.array, sp.csr_array)
    )
    assert same_state(ours, dense)


def test_row_by_row_is_the_chunk(rows):
    X, y = rows
    at_once, by_row = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    matrix = sp.csr_array(X)
    before = [by_row.learn(matrix[t : t + 1], y[t : t + 1])[0] for t in range(len(y))]
    np.testing.assert_array_equal(at_once.learn(matrix, y), before)
    assert same_state(at_once, by_row)


def test_a_refused_row_changes_nothing_and_is_told_by_its_number(rows):
    X, y = rows
    model = SGBRegressor(**SMALL).partial_fit(X[:100], y[:100])
    before = copy.deepcopy(model)
    X[250, 4] = -np.inf
    for call in (model.fit, model.partial_fit, model.learn, lambda X, _: model.predict(X)):
        with pytest.raises(ValueError, match="column 4 is -inf in row 250, expected no infinity"):
            call(sp.csc_array(X), y)
    for bad, words in [
        (sp.csr_array((3, 5)), "X has 5 features, but SGBRegressor is expecting 6"),
        (sp.csr_array((0, 6)), "0 sample"),
        (sp.csr_array((3, 6)) * 1j, "Complex data not supported"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.learn(bad, y[: bad.shape[0]])
    assert same_state(model, before)


def test_numbers_among_text_are_refused_by_row(rows):
    encoder = Encoder().encode([{0: "text", 1: 2.0}]).encoder
    X = np.full((20, 2), np.nan)
    X[18, 0] = 5.0
    with pytest.raises(ValueError, match=r"column 0 is 5.0 in row 18, a number, but it held text"):
        encoder.encode(sp.csr_array(X))


def test_columns_known_by_numbers_in_another_order_find_their_place(rows):
    dense, ours = (Encoder().encode([{2: 1.0, 0: 1.0}, {1: 3.0}]).encoder for _ in range(2))
    X = rows[0][:, :3]
    np.testing.assert_array_equal(np.asarray(ours.encode(sp.csr_array(X)).X), dense.encode(X).X)


def test_what_is_prepared_does_not_follow_what_becomes_of_the_matrix(rows):
    X, y = np.nan_to_num(rows[0]), rows[1]
    matrix, model = sp.csr_array(X), SGBRegressor(**SMALL)
    prepared = model.prepare(matrix, y)
    matrix.data[:] = 9.0
    model.learn_prepared(prepared)
    assert same_state(model, SGBRegressor(**SMALL).partial_fit(X, y))


def test_too_many_columns_are_refused_with_the_ways_out():
    wide = sp.csr_array((3, sparse_rows.WIDEST + 1))
    with pytest.raises(ValueError, match=r"sparse and has 4097 columns, .*fewer columns .*sparse_output=False"):
        SGBRegressor().fit(wide, [1.0, 2.0, 3.0])


def test_a_one_hot_encoder_in_a_pipeline_needs_no_option():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"city": rng.choice([*"abcdefgh"], 400), "size": rng.normal(size=400)})
    y = (frame["city"] < "d").to_numpy() ^ (rng.uniform(size=400) < 0.05)
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough", sparse_threshold=1.0)
    model = make_pipeline(columns, SGBClassifier(random_state=0)).fit(frame, y)
    assert sp.issparse(model[0].transform(frame))
    assert model.score(frame, y) > 0.9
    assert model.predict_proba(frame).shape == (400, 2)


def test_a_sparse_matrix_is_evaluated_row_by_row(rows):
    X, y = rows
    ours, dense = (
        list(prequential(SGBRegressor(**SMALL), (made(X), y), chunk=50))[-1].running
        for made in (sp.coo_array, np.array)
    )
    assert ours == dense


def test_memory_is_that_of_a_block(monkeypatch):
    n, d = 4000, 100
    monkeypatch.setattr(sparse_rows, "BLOCK_BYTES", 100 * 8 * d)
    X, y = sp.random_array((n, d), density=0.02, format="csr", rng=0), np.zeros(n)
    model = SGBRegressor(n_estimators=1, max_depth=1, memory=64).partial_fit(X[:200], y[:200])
    for call in (lambda: model.learn(X, y), lambda: model.predict(X)):
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < n * d * 8 / 3
