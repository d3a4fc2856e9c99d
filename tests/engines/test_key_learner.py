"""Keys learned in groups, with a state that stands for an engine's: what is told, and what survives what."""

import copy
import os
import random
import subprocess
import sys
import types

import numpy as np
import pyarrow as pa
import pytest

from streamboost import SGBClassifier, SGBRegressor
from streamboost.engines import flink, key_learner, spark
from streamboost.engines.key_learner import HotModels, KeyLearner, load_model, template_of
from streamboost.errors import MissingDependency
from streamboost.persistence.object_graph import same_state

SMALL = {"n_estimators": 4, "max_depth": 3, "memory": 64, "random_state": 0}


class State:
    """A state as an engine keeps it: what was put counts once it is committed, and is forgotten otherwise."""

    def __init__(self):
        self.committed, self.put_since, self.reads = {}, {}, 0

    def commit(self):
        self.committed |= self.put_since
        self.put_since = {}

    def forget(self):
        self.put_since = {}

    def _get(self, name):
        return (self.committed | self.put_since).get(name)

    def get_mark(self):
        return self._get("mark")

    def put_mark(self, mark):
        self.put_since["mark"] = mark

    def get(self, key):
        self.reads += 1
        return self._get(("model", key))

    def put(self, key, model):
        self.put_since["model", key] = model

    def models(self):
        return {name[1]: load_model(data) for name, data in self.committed.items() if name != "mark"}


def keyed(n, seed=0, n_keys=5):
    rng = np.random.default_rng(seed)
    keys, x = rng.integers(n_keys, size=n), rng.normal(size=(n, 2))
    y = x[:, 0] * keys + x[:, 1]
    columns = {"key": [f"k{key}" for key in keys], "at": np.arange(n), "a": x[:, 0], "b": x[:, 1], "y": y}
    return pa.table(columns)


def learner_of(model, **options):
    return KeyLearner(template_of(model), "key", "y", **{"order": "at"} | options)


def dict_of_models(model, rows):
    """What a plain dict of models predicts and becomes."""
    models, said = {}, {}
    for row in rows.to_pylist():
        one = models.setdefault(row["key"], copy.deepcopy(model))
        table = pa.table({name: [row[name]] for name in ("a", "b")})
        said[row["at"]] = one.learn(table, np.array([row["y"]])).tolist()[0]
    return said, models


def check(told, state, model, rows):
    said, models = dict_of_models(model, rows)
    assert {one["at"]: one["prediction"] for one in told} == said
    found = state.models()
    assert found.keys() == models.keys()
    assert all(same_state(found[key], models[key]) for key in models)


@pytest.mark.parametrize("seed", range(6))
def test_attempts_that_fail_and_workers_that_change_leave_no_trace(seed):
    """Chunks are learned by one of two workers; some attempts are forgotten and come again, cut otherwise."""
    rng, rows, model = random.Random(seed), keyed(300, seed), SGBRegressor(**SMALL)
    learner, state, told, start = learner_of(model), State(), [], 0
    workers = [HotModels(rng.choice([1, 3, 100])) for _ in range(2)]
    while start < len(rows):
        part = rows.slice(start, rng.randint(1, 60))
        part = part.take(pa.array(rng.sample(range(len(part)), len(part))))  # engines shuffle what is in a batch
        found = learner.learn("bucket", state, part, rng.choice(workers))
        if rng.random() < 0.3:
            state.forget()
            continue
        state.commit()
        told, start = told + found.to_pylist(), start + len(part)
    check(told, state, model, rows)


def test_a_hot_model_is_not_read_again_and_counts_under_the_committed_mark_only():
    rows, learner, state, hot = keyed(80, n_keys=1), learner_of(SGBRegressor(**SMALL)), State(), HotModels(10)
    learner.learn("k", state, rows.slice(0, 20), hot)
    state.commit()
    learner.learn("k", state, rows.slice(20, 20), hot)
    assert state.reads == 1  # of the first visit
    state.forget()
    learner.learn("k", state, rows.slice(20, 20), hot)
    assert state.reads == 2  # what is hot was not committed
    state.commit()
    learner.learn("another query's k", state, rows.slice(40, 20), hot)
    assert state.reads == 3
    state.commit()
    learner.learn("k", state, rows.slice(60, 20), hot)
    assert state.reads == 4
    state.commit()
    [model] = state.models().values()
    assert model.n_samples_seen_ == 80


def test_no_more_models_are_hot_than_the_limit():
    hot, learner, state = HotModels(3), learner_of(SGBRegressor(**SMALL)), State()
    for group in range(4):
        learner.learn(group, state, keyed(40, group), hot)
        assert hot.n == sum(len(models) for _, models in hot._groups.values()) <= 3


def test_rows_that_cannot_be_learned_are_told_and_the_others_learned():
    rows = keyed(120).to_pylist()
    good = [dict(row) for row in rows if row["at"] not in (7, 8, 9)]
    rows[7]["y"], rows[8]["a"], rows[9]["key"] = None, np.inf, None
    learner, state = learner_of(SGBRegressor(**SMALL)), State()
    told = {one["at"]: one for one in learner.learn("all", state, pa.Table.from_pylist(rows), HotModels(9)).to_pylist()}
    state.commit()
    assert {at: one["refused"] for at, one in told.items() if one["refused"]} == {
        7: "the target 'y' is missing, expected a number.",
        8: "column 'a' is inf, expected a finite number or none.",
        9: "the key 'key' is missing.",
    }
    assert all(told.pop(at)["prediction"] is None for at in (7, 8, 9))
    check(told.values(), state, SGBRegressor(**SMALL), pa.Table.from_pylist(good))


def test_what_only_the_model_refuses_is_told_of_its_row_alone():
    """As dicts, as Flink has them: text among numbers, and what is no value of a column at all."""
    rows = keyed(100).to_pylist()
    good = [dict(row) for row in rows if row["at"] not in (60, 61)]
    rows[60]["a"], rows[61]["b"] = "text", {"an": object()}
    learner, state, hot = learner_of(SGBRegressor(**SMALL)), State(), HotModels(9)
    told = learner.learn_dicts("all", state, rows[:50], hot) + learner.learn_dicts("all", state, rows[:49:-1], hot)
    state.commit()
    refused = {one["at"]: one["refused"] for one in told if one["refused"]}
    assert refused.keys() == {60, 61}
    assert "it held numbers so far" in refused[60]
    check([one for one in told if not one["refused"]], state, SGBRegressor(**SMALL), pa.Table.from_pylist(good))


def test_a_failure_of_the_machine_is_no_fault_of_a_row(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(key_learner, "predict_then_learn", fail)
    with pytest.raises(MemoryError):
        learner_of(SGBRegressor(**SMALL)).learn("all", State(), keyed(10), HotModels(9))


def test_classes_come_as_text_with_their_probability_and_none_before_any_is_known():
    rows = keyed(90, n_keys=2)
    high = pa.array((rows["y"].to_numpy() > 0).astype(int))
    rows = rows.set_column(rows.column_names.index("y"), "y", high)
    learner, state = learner_of(SGBClassifier(**SMALL)), State()
    told = learner.learn("all", state, rows, HotModels(9)).sort_by("at").to_pylist()
    first = {key: min(row["at"] for row in rows.to_pylist() if row["key"] == key) for key in ("k0", "k1")}
    assert {one["at"] for one in told if one["prediction"] is None} == set(first.values())
    assert {one["prediction"] for one in told} == {None, "0", "1"}
    models = {key: SGBClassifier(**SMALL) for key in first}
    for row, one in zip(rows.to_pylist(), told, strict=True):
        x = {name: row[name] for name in ("a", "b")}
        if row["at"] not in first.values():
            shares = models[row["key"]].predict_proba_one(x)
            assert (one["prediction"], one["probability"]) == (str(max(shares, key=shares.get)), max(shares.values()))
        models[row["key"]].learn_one(x, row["y"])


def test_new_keys_start_from_a_model_that_has_learned():
    prior, rows = SGBRegressor(**SMALL), keyed(60, 1)
    before = keyed(100, 2)
    prior.learn(before.select(["a", "b"]), before["y"].to_numpy())
    kept = copy.deepcopy(prior)
    learner, state = learner_of(prior), State()
    told = learner.learn("all", state, rows, HotModels(9)).to_pylist()
    state.commit()
    check(told, state, prior, rows)
    assert same_state(prior, kept)
    assert all(model.n_samples_seen_ > 100 for model in state.models().values())


def test_columns_can_be_chosen_and_rows_come_as_they_are_without_an_order():
    rows, model = keyed(50), SGBRegressor(**SMALL)
    learner, state = learner_of(model, order=None, features=["a", "b"]), State()
    told = learner.learn("all", state, rows, HotModels(9))
    state.commit()
    assert told.column_names == ["key", "prediction", "refused"]
    said, models = dict_of_models(model, rows)
    assert sorted(told["prediction"].to_pylist()) == sorted(said.values())
    assert all(same_state(state.models()[key], models[key]) for key in models)


def test_what_cannot_be_a_template_is_refused():
    with pytest.raises(TypeError, match="model is a str, expected an SGBRegressor or SGBClassifier"):
        template_of("model")
    with pytest.raises(ValueError, match=r"model is frozen, expected one that learns\. Pass the one it was made of"):
        template_of(SGBRegressor(**SMALL).fit([[1.0], [2.0]], [1.0, 2.0]).freeze())
    seeded = load_model(template_of(SGBRegressor()))
    assert seeded.random_state == 0


def test_engines_that_are_absent_say_what_brings_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyflink.common", None)
    with pytest.raises(MissingDependency, match=r"needs pyspark, .* pip install 'streamboost\[spark\]'"):
        spark.learn(None, SGBRegressor(), key="k", order="o", target="y")
    with pytest.raises(MissingDependency, match=r"needs apache-flink, .* docs/scale\.md"):
        flink.learn(None, SGBRegressor(), key="k", target="y")


def test_spark_says_that_pandas_is_too_new(monkeypatch):
    monkeypatch.setattr(spark, "require", lambda *_, **__: None)
    for version, is_new in (("2.3.3", False), ("3.1.1", True)):
        monkeypatch.setattr("importlib.metadata.version", lambda _, version=version: version)
        if is_new:
            with pytest.raises(MissingDependency, match=r"pandas is 3\.1\.1, .* pip install 'streamboost\[spark\]'"):
                spark.check_packages()
        else:
            spark.check_packages()


def test_print_is_pythons_own_while_flinks_worker_imports(monkeypatch):
    own = print

    class CustomPrint:  # as Flink's workers have it
        def __init__(self):
            self._print = own

        def print(self, *words):
            """Print otherwise."""

    replaced = CustomPrint().print
    monkeypatch.setattr("builtins.print", replaced)
    with flink.own_print():
        assert isinstance(print, types.BuiltinFunctionType)
    assert print is replaced


def test_the_group_of_a_key_is_the_same_in_every_process():
    said = []
    for seed in ("1", "2"):
        code = "from streamboost.engines.flink import GroupSelector as G; "
        code += "print([G('key', n).get_key({'key': f'k{i}'}) for i in range(20) for n in (None, 7)])"
        env = os.environ | {"PYTHONHASHSEED": seed}
        said.append(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
    assert said[0] == said[1]
    groups = {flink.GroupSelector("key", 7).get_key([{"key": f"k{i}"}]) for i in range(100)}
    assert len(groups) == 7
