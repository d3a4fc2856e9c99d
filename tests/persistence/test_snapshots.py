import contextlib
import copy
import errno
import hashlib
import json
import math
import os
import random
import stat
import struct
import sys
import types

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import load_file
from safetensors.numpy import save as write_safetensors
from sklearn.linear_model import SGDRegressor

from streamboost import SGBRegressor
from streamboost.bases import Constant, Frozen
from streamboost.boosting.booster import Booster, Hypothesis
from streamboost.boosting.cost import CostMeter
from streamboost.boosting.reservoir import Reservoir
from streamboost.descents import Ball, Box, FrankWolfe, GradientDescent, ResidualProjection
from streamboost.errors import SnapshotError
from streamboost.features.encoder import Encoder
from streamboost.features.standardizer import Standardizer
from streamboost.losses import Absolute, Logistic, Scale, Squared
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import count_bytes, flatten, same_state
from streamboost.persistence.snapshots import load, save
from streamboost.replay import Replay
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.tree import TreeStack

# A second reading of the format, by its description only.


def read_file(path):
    """The header as written in the file, and the arrays by name."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["streamboost"]), load_file(path)


def write_file(path, header, arrays):
    """A file with a true checksum around any header."""
    blank = {"version": header.get("version", 2), "sha256": "0" * 64} | header
    data = write_safetensors(arrays, {"streamboost": json.dumps(blank | {"sha256": "0" * 64}, separators=(",", ":"))})
    path.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1))


def round_trip(model, path):
    save(model, path)
    return load(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


# What comes back.

ARRAY_DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    npst.unicode_string_dtypes(endianness="?", max_len=4),
    npst.byte_string_dtypes(max_len=4),
    npst.datetime64_dtypes(endianness="?"),
)
ARRAYS = npst.arrays(ARRAY_DTYPES, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
HASHABLE_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**62, 2**66),
    st.floats(),
    st.text(),
    st.text(st.characters(categories=["Cs"])),
    st.binary(),
    st.builds(np.str_, st.text()),
    st.builds(np.bytes_, st.binary()),
    npst.arrays(st.sampled_from(["f8", "f4", "f2", "i8", "u2", "?", "c16", "M8[ns]"]), ()).map(lambda array: array[()]),
)
LABELS = st.lists(st.one_of(st.none(), st.text(), st.integers(), st.floats())).map(
    lambda labels: np.array([*labels, None], dtype=object)[:-1]
)
RANGES = st.builds(range, st.integers(), st.integers(), st.integers().filter(bool))
LEAVES = st.one_of(HASHABLE_SCALARS, ARRAYS, LABELS, RANGES)


def containers(inner):
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(HASHABLE_SCALARS, inner, max_size=4),
        st.dictionaries(st.tuples(HASHABLE_SCALARS, HASHABLE_SCALARS), inner, max_size=2),
        st.sets(HASHABLE_SCALARS, max_size=4),
        st.frozensets(HASHABLE_SCALARS, max_size=4),
        st.builds(CostMeter, inner, inner),
        st.builds(Scale, inner, inner),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(model=st.recursive(LEAVES, containers, max_leaves=12))
def test_every_nesting_of_what_can_be_saved_comes_back_bit_for_bit(model, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    assert same_state(round_trip(model, path), model)


@pytest.mark.parametrize(
    "number", [math.nan, -math.nan, struct.unpack(">d", b"\x7f\xf4\0\0\0\0\0\1")[0], math.inf, -0.0, 5e-324, 0.1]
)
def test_floats_keep_every_bit(number, path):
    assert struct.pack(">d", round_trip(number, path)) == struct.pack(">d", number)


@pytest.mark.parametrize("number", [True, 0, -(2**63), 2**63, -(10**30), 1 << 20000], ids=lambda n: f"{n:x}"[:9])
def test_whole_numbers_of_any_size_stay_what_they_are(number, path):
    loaded = round_trip(number, path)
    assert loaded == number
    assert type(loaded) is type(number)


LAYOUTS = {
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "strided": np.arange(24.0).reshape(4, 6)[::2, ::-3],
    "transposed": np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    "broadcast": np.broadcast_to(np.float32(1.5), (3, 2)),
    "unaligned": np.frombuffer(b"\0" + np.arange(3.0).tobytes(), dtype=np.uint8)[1:].view(np.float64),
    "big-endian": np.arange(5, dtype=">i4"),
    "big-endian floats": np.array([[0.1, np.nan]], dtype=">f8").T,
    "0-d": np.array(2.5),
    "empty": np.zeros((0, 3), dtype=np.uint16),
    "empty big-endian": np.zeros((3, 0), dtype=">f4"),
    "half": np.array([0.1, 65504], dtype=np.float16),
    "complex": np.array([1 + 2j, complex(np.nan, -0.0)]),
    "text": np.array([["ä", "abc"], ["", "δ"]]).T,
    "bytes": np.array([b"a", b""]),
    "times": np.array(["2017-04-20", "NaT"], dtype="datetime64[us]"),
    "booleans": np.array([True, False, True])[::2],
    "labels": np.array([["a", None], [3, 0.5]], dtype=object).T,
    "lists": np.array([[1], None, (2, 3)], dtype=object),
    "no labels": np.empty((0, 2), dtype=object),
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_of_any_layout_come_back_contiguous_and_writable(array, path):
    loaded = round_trip(array, path)
    assert loaded.dtype == array.dtype
    assert loaded.shape == array.shape
    assert repr(loaded.tolist()) == repr(array.tolist())  # NaN and -0 included
    assert loaded.flags.c_contiguous
    assert loaded.flags.writeable
    assert loaded.flags.aligned


def test_another_reader_of_safetensors_finds_the_arrays_under_their_paths(path):
    save({"stack": [LAYOUTS["fortran"], LAYOUTS["strided"], LAYOUTS["0-d"]]}, path)
    arrays = load_file(path)
    assert np.array_equal(arrays["['stack'][0]"], LAYOUTS["fortran"])
    assert np.array_equal(arrays["['stack'][1]"], LAYOUTS["strided"])
    assert arrays["['stack'][2]"].shape == ()


def test_a_file_written_by_hand_loads(path):
    nodes = [
        {"kind": "array", "name": "mean", "dtype": "<f8", "shape": [2]},
        {"kind": "tuple", "keys": [], "items": [{"ref": 0}, {"float": "7ff0000000000000"}, {"bytes": "ff"}]},
        {"kind": "Standardizer", "keys": ["clip", "mean"], "items": [5.0, {"ref": 0}]},
        {"kind": "dict", "keys": ["scaler", {"int": "-0xff"}], "items": [{"ref": 2}, {"ref": 1}]},
    ]
    write_file(path, {"version": 2, "root": {"ref": 3}, "nodes": nodes}, {"mean": np.array([0.5, -1.0])})
    model = load(path)
    assert isinstance(model["scaler"], Standardizer)
    assert vars(model["scaler"]).keys() == {"clip", "mean"}
    assert model["scaler"].mean.tolist() == [0.5, -1.0]
    assert model[-255] == (model["scaler"].mean, math.inf, b"\xff")


@pytest.mark.parametrize("bit_generator", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_generators_continue_where_they_were(bit_generator, path):
    rng = np.random.Generator(getattr(np.random, bit_generator)(7))
    rng.normal(size=5)
    rng.integers(10, dtype=np.uint32)  # leaves half a word behind
    rng.spawn(2)
    loaded = round_trip(rng, path)
    assert loaded.bytes(9) == rng.bytes(9)
    assert loaded.normal(size=99).tobytes() == rng.normal(size=99).tobytes()
    assert loaded.spawn(1)[0].random() == rng.spawn(1)[0].random()


def test_a_random_state_continues_where_it_was(path):
    random_state = np.random.RandomState(3)
    random_state.normal()  # leaves the second of a pair behind
    loaded = round_trip({"random_state": random_state}, path)["random_state"]
    assert loaded.normal(size=9).tolist() == random_state.normal(size=9).tolist()


def test_what_was_shared_is_shared_again(path):
    stack, rng, bits = LinearStack(2), np.random.default_rng(0), np.random.PCG64(0)
    stack.open(3, 1)
    eta = np.ones(2)
    kept = [Hypothesis(Constant(0), stack, eta), Hypothesis(Constant(0), stack, eta)]
    kept.append(kept[0])
    loaded = round_trip([kept, rng, {"rng": rng}, np.random.Generator(bits), np.random.Generator(bits)], path)
    hypotheses, first, second, *on_same_bits = loaded
    assert hypotheses[0].stack is hypotheses[1].stack
    assert hypotheses[0].eta is hypotheses[1].eta
    assert hypotheses[0].base is not hypotheses[1].base
    assert hypotheses[2] is hypotheses[0]
    assert first is second["rng"]
    assert on_same_bits[0].bit_generator is on_same_bits[1].bit_generator


def test_what_was_equal_but_not_shared_stays_apart(path):
    a, b = round_trip([np.zeros(2), np.zeros(2)], path)
    a[0] = 1.0
    assert b[0] == 0.0


def encoder():
    return Encoder().encode([{"price": 2.5, "color": "red"}, {"price": None, "color": "blue"}]).encoder


OBJECTS = {
    "frozen dataclasses": lambda: [GradientDescent(0.5), ResidualProjection(domain=Ball(2.0)), Box(-1, 1)],
    "a cache in a slot": encoder,
    "a generic class": lambda: Reservoir[int](capacity=3, seed=1),
    "a named tuple": lambda: Scale(step=0.5, spread=2.0),
    "losses": lambda: [Squared(), Absolute(), Logistic()],
    "memory": lambda: Replay(window=64),
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_objects_of_every_making_come_back(make, path):
    model = make()
    loaded = round_trip(model, path)
    assert type(loaded) is type(model)
    assert repr(loaded) == repr(model) or "object at" in repr(model)
    assert same_state(loaded, model)
    assert same_state(loaded, copy.deepcopy(model))


def test_a_loaded_encoder_knows_its_columns(path):
    loaded = round_trip(encoder(), path)
    assert loaded.encode_one({"color": "blue", "price": 1.0}).X.tolist() == [[1.0, 1.0]]


def test_a_cache_beside_the_state_is_no_part_of_it(path):
    used = encoder()
    before = copy.deepcopy(flatten(used))
    used.encode_one({"color": "blue"}, known_only=True)  # looks the name up in an index made on the way
    assert same_state(flatten(used), before)
    save(used, path)
    assert not any("_index" in node["keys"] for node in read_file(path)[0]["nodes"])


def test_loading_makes_objects_without_init_and_only_asks_it_whether_options_are_allowed(path, monkeypatch):
    descent = GradientDescent(0.5)
    save(descent, path)
    made = []
    init = GradientDescent.__init__
    monkeypatch.setattr(GradientDescent, "__init__", lambda self, **options: made.append(self) or init(self, **options))
    loaded = load(path)
    assert loaded.step_size == 0.5
    assert all(one is not loaded for one in made)
    descent.__dict__["step_size"] = -1.0
    save(descent, path)
    with pytest.raises(SnapshotError, match=r"step_size is -1\.0"):
        load(path)


# Going on from a snapshot.


def stream(n=240, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=n)


BOOSTERS = {
    "linear": lambda: Booster(Squared(), GradientDescent("theory"), LinearStack(4)),
    "linear, adagrad, averaged": lambda: Booster(
        Absolute(), stack=LinearStack(3, update="adagrad"), iterate="average", snapshots=7, seed=5
    ),
    "tree": lambda: Booster(Squared(), stack=TreeStack(5, max_depth=3), replay=Replay(64, refit_every=16)),
    "tree, exact memory": lambda: Booster(
        Squared(),
        stack=TreeStack(2, max_depth=2),
        base=Constant(),
        replay=Replay(None, refit_every=8, targets="recorded"),
    ),
}


@pytest.mark.parametrize("make", BOOSTERS.values(), ids=BOOSTERS)
@pytest.mark.parametrize("at", [0, 1, 101])
def test_a_booster_saved_mid_stream_and_loaded_continues_bit_for_bit(make, at, path):
    X, y = stream()
    straight, interrupted = make(), make()
    scores = straight.learn(X, y)
    first = interrupted.learn(X[:at], y[:at])
    resumed = round_trip(interrupted, path)
    assert same_state(resumed, interrupted)
    rest = resumed.learn(X[at:], y[at:])
    assert np.concatenate([first, rest]).tobytes() == scores.tobytes()
    assert same_state(resumed, straight)


def test_saving_leaves_the_model_unchanged(path):
    X, y = stream(50)
    booster = BOOSTERS["tree"]()
    booster.learn(X, y)
    before = flatten(booster)
    save(booster, path)
    assert same_state(flatten(booster), before)


def test_the_same_model_gives_the_same_file(tmp_path):
    X, y = stream(50)
    for name, numbers in (("a", [0, 8]), ("b", [8, 0])):  # the two collide: a set keeps them as they came
        booster = BOOSTERS["tree"]()
        booster.learn(X, y)
        save([booster, set(numbers)], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# What cannot be saved.


class Homemade(Squared):
    """A loss from outside streamboost."""


def frozen(model):
    booster = Booster(Squared(), stack=LinearStack(2), base=Frozen(model))
    booster.allocate(2, 1)
    return booster


def looped():
    loop = {"here": []}
    loop["here"].append(loop)
    return loop


FOREIGN = {
    "a scikit-learn model": (
        lambda: frozen(SGDRegressor()),
        r"^base\.model is a sklearn\.linear_model\.SGDRegressor, which cannot be saved without pickle\. .* pickle",
    ),
    "a function": (lambda: frozen(lambda X: X), r"^base\.model is a function, "),
    "a model in a list": (lambda: {"models": [1, SGDRegressor()]}, r"^\['models'\]\[1\] is a sklearn"),
    "the model itself": (lambda: SGDRegressor(), r"^model is a sklearn"),
    "a module": (lambda: [math], r"^\[0\] is a module"),
    "a class": (lambda: [Squared], r"^\[0\] is a abc\.ABCMeta"),
    "a class of one's own": (lambda: [Homemade()], r"^\[0\] is a test_snapshots\.Homemade"),
    "a structured array": (lambda: {"a": np.zeros(2, dtype="i4,f8")}, r"^\['a'\] is a numpy\.ndarray of dtype \[\("),
    "a masked array": (lambda: [np.ma.masked_array([1.0])], r"^\[0\] is a numpy\.ma\.MaskedArray"),
    "a strange key": (lambda: {"a": {SGDRegressor: 1}}, r"^\['a'\]\[key <class .*\] is a abc\.ABCMeta"),
    "an element of labels": (lambda: [np.array([1, SGDRegressor()], dtype=object)], r"^\[0\]\.flat\[1\] is a sklearn"),
    "an error of ours": (lambda: [SnapshotError("no")], r"^\[0\] is a streamboost\.errors\.SnapshotError"),
    "a subclass of dict": (lambda: [type("Own", (dict,), {})()], r"^\[0\] is a test_snapshots\.Own"),
    "a numpy record": (lambda: [np.zeros(1, dtype="i4,f8")[0]], r"^\[0\] is a numpy\.void"),
    "a cycle": (looped, r"^\['here'\]\[0\] leads back to itself"),
}


@pytest.mark.parametrize(("make", "message"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_objects_are_refused_by_path_before_anything_is_written(make, message, path):
    path.write_bytes(b"old")
    with pytest.raises(SnapshotError, match=message):
        save(make(), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_a_model_nested_beyond_reason_is_refused(path):
    model = []
    for _ in range(100_000):
        model = [model]
    with pytest.raises(SnapshotError, match="nested too deeply"):
        save(model, path)
    while model:
        model = model.pop()  # letting go of it all at once would overflow the stack


def test_a_header_that_could_not_be_read_again_is_not_written(path, monkeypatch):
    monkeypatch.setattr(snapshots, "HEADER_LIMIT", 1000)
    save(list(range(100)), path)
    before = path.read_bytes()
    with pytest.raises(SnapshotError, match="more than 1,000 bytes outside its arrays"):
        save(list(range(1000)), path)
    assert path.read_bytes() == before


# Damaged and hostile files.


def small_model():
    return {"scale": Scale(np.zeros(2), np.float32(0.1)), "more": [None, "ä", math.nan, CostMeter()]}


def test_a_change_of_any_byte_is_noticed(path):
    save(small_model(), path)
    data = path.read_bytes()
    for i in range(len(data)):
        for mask in (1 << i % 8, 255):
            path.write_bytes(data[:i] + bytes([data[i] ^ mask]) + data[i + 1 :])
            with pytest.raises(SnapshotError, match="cannot be loaded: "):
                load(path)


def test_every_truncation_and_every_addition_is_noticed(path):
    save(small_model(), path)
    data = path.read_bytes()
    for damaged in (*(data[:n] for n in range(len(data))), data + b"\0", data + data, b"\0" + data):
        path.write_bytes(damaged)
        with pytest.raises(SnapshotError, match="cannot be loaded: "):
            load(path)


def test_damage_and_strangers_are_told_apart(path):
    save(small_model(), path)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\x07")
    with pytest.raises(SnapshotError, match=r"model\.safetensors' cannot be loaded: its checksum does not match"):
        load(path)
    path.write_bytes(write_safetensors({"weights": np.ones(3)}))
    with pytest.raises(SnapshotError, match="it is no snapshot"):
        load(path)


def test_a_newer_format_asks_for_an_upgrade(path):
    write_file(path, {"version": 4, "root": None, "nodes": []}, {})
    with pytest.raises(SnapshotError, match=r"its format version is 4, .* up to 3\. Upgrade: pip install"):
        load(path)


def node(kind, items=(), keys=()):
    return {"kind": kind, "keys": list(keys), "items": list(items)}


ARRAY = {"kind": "array", "name": "a", "dtype": "<f8", "shape": [2]}
TILES = ARRAY | {"kind": "tiles", "cut": [2, 1]}
MALFORMED = {
    "a class of others": node("os:system"),
    "a built-in": node("builtins:eval"),
    "a module with a similar name": node("streamboost_evil:Model"),
    "a module that is not there": node("streamboost.nothing:Model"),
    "a class that is not there": node("Nothing"),
    "a class merely imported": node("streamboost.persistence.snapshots:Path"),
    "a class of ours imported elsewhere": node("streamboost.bases:Standardizer"),
    "a function": node("streamboost.errors:require"),
    "a method": node("streamboost.boosting.cost:CostMeter.add"),
    "a module": node("streamboost.persistence.snapshots:os"),
    "a class through a module": node("streamboost.persistence.snapshots:os.PathLike"),
    "an old name in a new file": node("streamboost.boosting.cost:CostMeter"),
    "an abstract class": node("Loss"),
    "an exception": node("SnapshotError"),
    "no class": node("streamboost.losses"),
    "an empty name": node(""),
    "a name that is no text": node(3),
    "attributes without values": node("CostMeter", keys=["updates"]),
    "an attribute without a name": node("CostMeter", [1], [{"ref": 0}]),
    "an attribute with a number": node("CostMeter", [1], [3]),
    "a named tuple of other fields": node("Scale", [1.0], ["step"]),
    "a named tuple of fewer values": node("Scale", [1.0], ["step", "spread"]),
    "an array that is not there": ARRAY | {"name": "b"},
    "an array of another shape": ARRAY | {"shape": [3]},
    "an array of negative shape": ARRAY | {"shape": [-1, -2]},
    "an array of broken shape": ARRAY | {"shape": [0.5, 4]},
    "an array of another dtype": ARRAY | {"dtype": "<f4"},
    "an array of objects": ARRAY | {"dtype": "|O"},
    "an array of records": ARRAY | {"dtype": "f4,f4"},
    "an array of nothing known": ARRAY | {"dtype": "quux"},
    "tiles without a table": TILES | {"name": "b"},
    "tiles with a table of another kind": TILES,
    "tiles in no segment": TILES | {"name": "table"},
    "too many tiles": TILES | {"name": "table", "shape": [1]},
    "tiles of no rows": TILES | {"name": "table", "cut": [0, 1]},
    "tiles of fewer rows than none": TILES | {"name": "nothing", "cut": [-1, 1]},
    "tiles of one number": TILES | {"name": "table", "cut": [2]},
    "tiles of objects": TILES | {"name": "table", "dtype": "|O"},
    "a part to come": node("list", [{"ref": 1}]),
    "a part counted from the end": node("list", [{"ref": -1}]),
    "a part by truth": node("list", [{"ref": False}]),
    "a value of no kind": node("list", [{"eval": "1"}]),
    "a value of two kinds": node("list", [{"int": "1", "bytes": "00"}]),
    "a bare list": node("list", [[1]]),
    "a broken float": node("list", [{"float": "7ff0"}]),
    "a broken number": node("list", [{"int": "1g"}]),
    "an unhashable key": node("dict", [1], [{"ref": 0}]),
    "a key without a value": node("dict", [1], ["a", "b"]),
    "a range of text": node("range", ["a"]),
    "labels of another shape": node("objects", [{"ref": 0}, 1, 2, 3]),
    "a generator of nothing": node("Generator", [3]),
    "bits of nothing": node("PCG64", [{"ref": 0}, None]),
    "a node without kind": {"items": []},
    "a node that is a list": ["list"],
    "a node that is nothing": None,
}


@pytest.mark.parametrize("bad", MALFORMED.values(), ids=MALFORMED)
def test_malformed_headers_are_refused_though_the_checksum_is_right(bad, path):
    arrays = {"a": np.ones(2), "table": np.zeros(48, np.uint8), "nothing": np.zeros(0, np.uint8)}
    write_file(path, {"root": {"ref": 1}, "nodes": [node("list"), bad]}, arrays)
    with pytest.raises(SnapshotError, match="cannot be loaded: "):
        load(path)


@pytest.mark.parametrize("segments", [[], [["../a.tiles", 3]], [["a" * 32 + ".tiles", 3]], [7], {}, None])
def test_segments_that_are_not_there_are_refused(segments, path):
    header = {"root": {"ref": 0}, "nodes": [TILES | {"name": "table"}], "segments": segments, "version": 3}
    write_file(path, header, {"table": np.zeros(48, np.uint8)})
    with pytest.raises(SnapshotError, match="cannot be loaded: "):
        load(path)


@pytest.mark.parametrize(
    "header", [{}, {"root": None}, {"nodes": [], "root": {"ref": 0}}, {"nodes": 3, "root": None}, {"version": None}]
)
def test_incomplete_headers_are_refused(header, path):
    write_file(path, header, {})
    with pytest.raises(SnapshotError, match="cannot be loaded: "):
        load(path)


def test_the_main_program_is_not_run_by_a_file(path, monkeypatch):
    program = types.ModuleType("streamboost.__main__")
    program.Model = type("Model", (), {"__module__": "streamboost.__main__"})
    monkeypatch.setitem(sys.modules, "streamboost.__main__", program)
    write_file(path, {"root": {"ref": 0}, "nodes": [node("streamboost.__main__:Model")]}, {})
    with pytest.raises(SnapshotError, match="no class that this streamboost saves"):
        load(path)


def replaced(tree, rng, new):
    """The same JSON with one place in it, any, taken by something else."""
    places = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    if not places or rng.random() < 0.1:
        return new
    tree = copy.copy(tree)
    at = rng.choice(list(places))
    tree[at] = replaced(tree[at], rng, new)
    return tree


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 99),
        st.floats(),
        st.text(max_size=3),
        st.sampled_from(["CostMeter", "list", "dict", "objects", "PCG64", "array", "<f8"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["ref", "int", "items", "scalar", "kind"]), inner, max_size=2),
    ),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), new=JSON)
def test_a_changed_header_with_a_true_checksum_never_fails_otherwise(seed, new, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    save([small_model(), np.random.default_rng(0), Scale(1.0, 2.0), np.array(["a", 1], dtype=object)], path)
    header, arrays = read_file(path)
    rng = random.Random(seed)
    nodes = [replaced(node, rng, new) if rng.random() < 0.3 else node for node in header["nodes"]]
    write_file(path, {"root": header["root"], "nodes": nodes}, arrays)
    with contextlib.suppress(SnapshotError):
        assert same_state(load(path), load(path))


# Files and directories.


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(function, path, monkeypatch):
    save([1], path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fail)
        with pytest.raises(OSError, match="No space left"):
            save([2], path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    assert load(path) == [1]


def test_an_interrupted_write_leaves_nothing_behind(path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save([2], path)
    assert os.listdir(path.parent) == []


@pytest.mark.skipif(os.name != "posix", reason="directories cannot be opened here")
def test_the_data_reach_the_disk_before_the_name_and_the_name_before_the_end(path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else os.fstat(descriptor).st_size)
        fsync(descriptor)

    def watched_replace(source, target):
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(np.arange(1000), path)
    assert steps == [path.stat().st_size, "rename", "directory"]


def test_paths_may_be_text_and_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save([1], "model")
    assert load("model") == load(tmp_path / "model") == [1]


def test_a_directory_is_no_place_to_save_to(tmp_path):
    with pytest.raises(IsADirectoryError, match="a directory, expected a file"):
        save([1], tmp_path)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere' is no directory\. Make that directory first"):
        save([1], tmp_path / "nowhere" / "model")
    assert os.listdir(tmp_path) == []


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="model"):
        load(tmp_path / "model")


@pytest.mark.skipif(os.name != "posix", reason="no links and modes here")
def test_links_and_modes_outlive_saving(tmp_path):
    target, link = tmp_path / "model", tmp_path / "latest"
    save([1], target)
    target.chmod(0o640)
    link.symlink_to(target)
    save([2], link)
    assert link.is_symlink()
    assert load(target) == [2]
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


# Comparing states.


def test_flatten_names_every_leaf_by_its_path():
    stack = LinearStack(2, standardize=False)
    stack.open(1, 1)
    paths = flatten({"stack": stack, "pair": (1, {"a"})})
    assert paths["['stack']._weights"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert paths["['stack'].n_learners"] == 2
    assert paths["['pair'][0]"] == 1
    assert paths["['pair'][1]{'a'}"] == "a"


def test_the_bytes_of_all_arrays_are_counted_without_copying_them():
    model = SGBRegressor(n_estimators=3, memory=64, random_state=np.random.RandomState(0))
    model.fit(np.arange(60.0).reshape(20, 3), np.arange(20.0))
    for thing in (model, model.booster_.present, [model, {"a": np.zeros(3), "b": (1, None, np.array(["x", None]))}]):
        expected = sum(value.nbytes for value in flatten(thing).values() if isinstance(value, np.ndarray))
        assert count_bytes(thing) == expected


def test_flatten_is_a_photograph():
    scaler = Standardizer(1)
    before = flatten(scaler)
    scaler.learn(np.ones((1, 1)), np.ones(1))
    assert before["mean"].tolist() == [0.0]
    assert not same_state(before, flatten(scaler))


DIFFERENT = {
    "zero and minus zero": (0.0, -0.0),
    "in arrays": (np.array([0.0]), np.array([-0.0])),
    "payloads of nan": (math.nan, -math.nan),
    "number types": (1, 1.0),
    "truth and one": (1, True),
    "scalar types": (np.float64(1), 1.0),
    "dtypes": (np.zeros(2), np.zeros(2, np.float32)),
    "byte orders": (np.zeros(2, ">f8"), np.zeros(2, "<f8")),
    "shapes": (np.zeros((2, 1)), np.zeros((1, 2))),
    "containers": ([1], (1,)),
    "empty containers": ([], {}),
    "lengths": ([1], [1, 1]),
    "an empty element": ([[]], []),
    "order of a dict": ({"a": 1, "b": 1}, {"b": 1, "a": 1}),
    "keys": ({1: 0}, {"1": 0}),
    "classes": (Ball(1.0), FrankWolfe(1.0)),
    "attributes": (Ball(1.0), Ball(2.0)),
    "generators": (np.random.default_rng(0), np.random.default_rng(1)),
    "functions": (len, max),
    "lambdas": (lambda: 1, lambda: 1),
    "foreign models": (SGDRegressor(alpha=1.0), SGDRegressor(alpha=2.0)),
    "element types": (np.array([1], dtype=object), np.array([1.0], dtype=object)),
}


@pytest.mark.parametrize(("a", "b"), DIFFERENT.values(), ids=DIFFERENT)
def test_states_differ_where_anything_differs(a, b):
    assert not same_state({"model": a}, {"model": b})
    assert same_state({"model": a}, {"model": a})


def test_states_agree_whatever_the_layout_and_the_order_of_attributes():
    a, b = object.__new__(CostMeter), object.__new__(CostMeter)
    a.updates, a.predictions = 1, np.eye(3, 2)
    b.predictions, b.updates = np.asfortranarray(np.eye(3, 2)), 1
    assert same_state(a, b)


def test_foreign_models_are_compared_by_what_they_learned():
    X, y = stream(20)
    model, twin = SGDRegressor(random_state=0), SGDRegressor(random_state=0)
    model.partial_fit(X, y)
    assert not same_state(Frozen(model), Frozen(twin))
    twin.partial_fit(X, y)
    assert same_state(Frozen(model), Frozen(twin))
