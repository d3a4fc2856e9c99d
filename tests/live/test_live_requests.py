"""Requests to a live model: refused in words, sent again, learned together, from several threads."""

import copy
import json
import math
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_models import classifier, columns_of, crash, features, regressor, rows_of

from streamboost.live import LiveModel, NotTogether
from streamboost.live.request_checks import unlearnable_rows
from streamboost.live.results import pack_answer, unpack_answer
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import same_state


def test_what_the_model_would_refuse_is_refused_before_anything_is_written(tmp_path):
    live = LiveModel(tmp_path, classifier(loss="hinge"))
    live.learn(pa.table({"a": [1.0, 2.0], "target": ["yes", "no"]}))
    live.remember(["k"], pa.table({"a": [1.0]}))
    before = live.journal_length, live.rows, live.n_pending
    for request in (
        lambda: live.learn(pa.table({"a": [3.0], "target": ["maybe"]}), id="i"),
        lambda: live.label(["k"], ["maybe"], id="i"),
    ):
        with pytest.raises(ValueError, match="'maybe', but loss 'hinge' has room for 2 classes"):
            request()
    assert (live.journal_length, live.rows, live.n_pending) == before
    assert live.label(["k"], ["yes"], id="i").learned == 1  # the id was not used up
    live.close()


def test_options_that_do_not_fit_the_first_rows_are_refused_with_them(tmp_path):
    with LiveModel(tmp_path, regressor(monotonic_cst={"a": 5})) as live:
        with pytest.raises(ValueError, match="monotonic_cst"):
            live.learn(pa.table({"a": [1.0], "target": [1.0]}))
        assert live.journal_length == 0


kinds = st.sampled_from(["number", "text", "absent", "null"])


@given(
    chunks=st.lists(st.tuples(kinds, kinds, st.sampled_from(["u", "v", "w", "z"])), min_size=1, max_size=6),
    loss=st.sampled_from(["log_loss", "hinge"]),
    is_begun=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_rows_are_prepared_after_others_as_if_those_had_been_learned(chunks, loss, is_begun):
    model = classifier(loss=loss, n_estimators=1)
    if is_begun:
        model.learn(pa.table({"a": [1.0, 2.0], "c": ["p", "q"]}), np.array(["u", "v"]))
    before = snapshots.pack(model)
    after, real = None, copy.deepcopy(model)
    values = {"number": pa.array([1.0]), "text": pa.array(["p"]), "null": pa.array([None], pa.string())}
    for *two, label in chunks:
        columns = {name: values[kind] for name, kind in zip("cd", two, strict=True) if kind != "absent"}
        X, y = pa.table({"a": [3.0]} | columns), np.array([label], dtype=object)
        try:
            real.learn(X, y)
            is_taken = True
        except ValueError:
            is_taken = False
        try:
            after = model.prepare(X, y, after=after)
            assert is_taken
        except ValueError:
            assert not is_taken
        assert unlearnable_rows(model, X, after) == unlearnable_rows(real, X)
    assert snapshots.pack(model) == before


def test_a_repeated_answer_has_the_reasons_of_all_bad_rows(tmp_path):
    values = [1.5 if i % 3 == 2 else None for i in range(700)]  # reasons that differ, and one that is fine
    table = pa.table({"a": np.arange(700.0), "target": pa.array([*values[:-1], 1.0])})
    live = LiveModel(tmp_path / "live", classifier())
    first = live.learn(table, id="r")
    keys = [f"k{i}" for i in range(300)]
    labelled = live.label(keys, [math.nan] * 299 + [1.0], id="s")
    assert (len(first.reasons), len(labelled.reasons), first.rows, labelled.early) == (699, 299, 1, 1)
    live = LiveModel(crash(live, tmp_path))
    again, labelled_again = live.learn(table, id="r"), live.label(keys, [math.nan] * 299 + [1.0], id="s")
    assert (again.repeated, again.rows, again.quarantined, again.reasons) == (True, 1, 699, first.reasons)
    assert (labelled_again.repeated, labelled_again[:5]) == (True, labelled[:5])
    assert labelled_again.reasons == labelled.reasons
    assert (live.rows, live.n_quarantined) == (1, 998)
    with pytest.raises(ValueError, match=r"id 'r' is that of an earlier request to learn\. Give each"):
        live.label(["k"], [1.0], id="r")
    live.close()


@given(st.dictionaries(st.integers(0, 30), st.sampled_from(["p", "q"])))
def test_packed_answers_lose_nothing(reasons):
    kept = json.loads(json.dumps(pack_answer({"rows": 1, "reasons": reasons})))
    assert unpack_answer(kept) == {"rows": 1, "reasons": reasons}
    assert len(kept["reasons"]) <= len(reasons)


def requests_with_bad_rows(n, make_target):
    """Tables of many sizes with targets missing here and there, one of them everywhere; every second has an id."""
    rng = np.random.default_rng(3)
    tables = []
    for number in range(n):
        table = rows_of(int(rng.integers(1, 30)), seed=number)
        X, y = columns_of(table)
        is_bad = np.ones(len(y), bool) if number == 4 else rng.random(len(y)) < 0.15
        tables.append(X.append_column("target", pa.array(make_target(y), mask=is_bad)))
    return tables, [f"request {number}" if number % 2 else None for number in range(n)]


def brief(learned):
    arrays = learned.y.tolist(), learned.predictions.tolist(), learned.answers.known.tolist(), learned.good.tolist()
    return *arrays, learned.rows, learned.quarantined, learned.repeated, learned.reasons


@pytest.mark.parametrize(
    ("make", "make_target"), [(regressor, lambda y: y), (classifier, lambda y: np.where(y > 0, "up", "down"))]
)
def test_requests_learned_together_are_answered_and_learned_as_one_after_the_other(tmp_path, make, make_target):
    tables, ids = requests_with_bad_rows(12, make_target)
    one, all_ = (LiveModel(tmp_path / name, make(), checkpoint_every=100) for name in ("one", "all"))
    alone = [one.learn(table, id=id) for table, id in zip(tables, ids, strict=True)]
    together = []
    for start in range(0, 12, 4):
        together += all_.learn_together(tables[start : start + 4], ids[start : start + 4])
    assert [*map(brief, together)] == [*map(brief, alone)]
    assert sum(learned.quarantined for learned in together) == all_.n_quarantined > 10
    assert (all_.rows, all_.n_quarantined) == (one.rows, one.n_quarantined)
    assert same_state(all_.model, one.model)
    assert all_.learn(tables[5], id=ids[5])[:3] == (alone[5].rows, alone[5].quarantined, True)
    texts = [(live.directory / "quarantine.jsonl").read_text().splitlines() for live in (one, all_)]
    seen, expected = ([(json.loads(line)["row"], json.loads(line)["values"]) for line in lines] for lines in texts)
    assert seen == expected
    copied = crash(all_, tmp_path)
    with LiveModel(copied) as again:
        assert same_state(again.model, one.model)
    one.close()


def test_what_cannot_be_learned_together_is_said_so_before_anything_changes(tmp_path, monkeypatch):
    monkeypatch.setattr("streamboost.live.journal.transactions.LARGEST", 50_000)
    with LiveModel(tmp_path, regressor()) as live:
        live.learn(rows_of(50), id="known")
        live.label(["k"], [1.0], id="a label's")
        before, counts = snapshots.pack(live.model), (live.rows, live.journal_length, live.n_quarantined)
        strange = pa.table({"a": ["text"], "b": ["x"], "target": [1.0]})
        huge = pa.table({"a": [1.0], "b": ["x"], "target": [1e200]})
        for tables, ids in (
            ([rows_of(2), rows_of(3)], ["new", "known"]),
            ([rows_of(2), rows_of(3)], ["twice", "twice"]),
            ([rows_of(2), rows_of(3)], ["new", "a label's"]),
            ([rows_of(2), rows_of(3)], ["new", 7]),
            ([rows_of(2), rows_of(3)], ["new", ["list"]]),
            ([rows_of(2), rows_of(3)], ["new", "\ud800"]),
            ([rows_of(2), rows_of(3)], ["new"]),
            ([rows_of(2), {"a": 1.0}], ["new", None]),
            ([rows_of(2), rows_of(2).append_column("a", pa.array([1.0, 2.0]))], ["new", None]),
            ([rows_of(2), rows_of(4000)], ["new", None]),  # more than an entry may hold, here
            ([rows_of(2), strange], [None, None]),
            ([strange, strange], [None, None]),
            ([rows_of(2), rows_of(2, target="other")], [None, None]),
        ):
            with pytest.raises(NotTogether):
                live.learn_together(tables, ids)
            assert (live.rows, live.journal_length, live.n_quarantined) == counts
            assert snapshots.pack(live.model) == before
        assert [learned.rows for learned in live.learn_together([rows_of(2), huge], [None, "new"])] == [2, 0]


def test_bad_rows_are_reported_and_written_down_and_no_error(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        learned = live.learn(pa.table({"a": [1.0, math.inf, 3.0], "target": [1.0, 2.0, None]}), id="r")
        assert (learned.rows, learned.quarantined, learned.good.tolist()) == (1, 2, [True, False, False])
        assert learned.predictions.shape == (1,)
        lines = (tmp_path / "quarantine.jsonl").read_text().splitlines()
        assert len(lines) == 2
        assert '"position": "r"' in lines[0]
        assert live.learn(pa.table({"a": [1.0], "target": pa.array([None], pa.float64())})).rows == 0


def two_named(*names):
    return pa.Table.from_arrays([pa.array([1.0])] * len(names), names=names)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (lambda live: live.learn({"a": 1}), TypeError, "table is a dict, expected a pyarrow.Table"),
        (lambda live: live.learn(features((1.0, "x"))), ValueError, "no target column 'target'"),
        (lambda live: live.label("key", [1.0]), TypeError, r"For one row pass \['key'\]"),
        (lambda live: live.label([1], [1.0]), TypeError, "key 1 is a int, expected text"),
        (lambda live: live.label(["\ud800"], [1.0]), ValueError, "half a character"),
        (lambda live: live.label(["k"], 1.0), TypeError, r"targets is 1.0, expected a list"),
        (lambda live: live.label(["k"], [[1.0]]), TypeError, "expected a number, text or a boolean"),
        (lambda live: live.label(["k", "l"], [1.0]), ValueError, "2 keys and 1 targets"),
        (lambda live: live.label(["k", "l", "k"], [1.0] * 3), ValueError, "'k' is there twice"),
        (lambda live: live.label(["k", "l"], [1.0, "x"]), ValueError, "all numbers, all texts or all booleans"),
        (lambda live: live.remember(["k"], pa.table({"a": [[1]]})), TypeError, "'a' holds list"),
        (lambda live: live.remember(["k"], pa.table({"target": [1]})), ValueError, "which is what is to be predicted"),
        (lambda live: live.remember(["k"], features((1.0, "x")), [[0.1, 0.9]]), ValueError, "Pass probabilities"),
        (lambda live: live.learn(two_named("a", "a", "target")), ValueError, "two columns named 'a'.*Rename or drop"),
        (lambda live: live.learn(two_named("a", "target", "target")), ValueError, "two columns named 'target'"),
        (lambda live: live.remember(["k"], two_named("a", "b", "b")), ValueError, "two columns named 'b'"),
        (lambda live: live.predict(two_named("a", "b", "b"), ["k"]), ValueError, "two columns named 'b'"),
        (lambda live: live.learn(rows_of(1), id=7), TypeError, "id 7 is a int, expected text"),
    ],
)
def test_wrong_requests_are_refused_in_words(tmp_path, request_, error, words):
    with LiveModel(tmp_path, regressor()) as live:
        with pytest.raises(error, match=words):
            request_(live)
        assert (live.journal_length, live.n_pending, live.n_quarantined) == (0, 0, 0)


def test_a_second_thread_that_writes_is_refused_and_a_closed_model_says_so(tmp_path):
    errors = []

    def expire():
        with pytest.raises(RuntimeError) as caught:
            live.expire()
        errors.append(caught)

    def meddle(state, batch):
        thread = threading.Thread(target=expire)
        thread.start()
        thread.join()

    live = LiveModel(tmp_path, regressor(), on_learned=meddle)
    live.learn(rows_of(5))
    assert "two threads use a live model at once" in str(errors[0].value)
    live.close()
    live.close()
    with pytest.raises(ValueError, match="is closed"):
        live.learn(rows_of(5))
    with pytest.raises(ValueError, match="Open it again"):
        live.remember(["k"], features((1.0, "x")))


def test_rows_remembered_by_many_threads_while_another_learns_are_all_there(tmp_path):
    live = LiveModel(tmp_path, regressor(), durable=False)
    X, _ = columns_of(rows_of(40))

    def remember(worker):
        for i in range(40):
            live.remember([f"{worker}-{i}"], X.slice(i, 1))

    threads = [threading.Thread(target=remember, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for seed in range(10):
        live.learn(rows_of(30, seed))
    for thread in threads:
        thread.join()
    assert live.n_pending == 240
    for worker in range(6):
        assert live.label([f"{worker}-{i}" for i in range(40)], np.arange(40.0)).learned == 40
    assert (live.rows, live.n_pending) == (300 + 240, 0)
    live.close()
