"""Models forged with a valid checksum: refused with the name of the array, and never the end of the process."""

import copy
import pickle
import resource
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import small_tiles
from forge import KINDS, forgeries, make

from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots
from streamboost.persistence.segments import SegmentStore

HARMLESS = ("refused", "used")


def limited():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tried(directory, first, step):
    """Use each ``step``-th forgery in another process; return what became of each, None if it ended the process."""
    found, n = {}, len(sorted(directory.glob("*.safetensors"))[first::step])
    while len(found) < n:
        places = [str(first + step * len(found)), str(step)]
        command = [sys.executable, str(Path(__file__).parent / "forge.py"), str(directory), *places]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, timeout=7200, check=False)
        lines = [line.partition(" ") for line in done.stdout.splitlines()]
        found |= {name: outcome or None for name, _, outcome in lines}
        assert lines, done.stderr
    return found


def test_no_forged_model_ends_the_process(tmp_path, request, monkeypatch):
    n_files, n_workers = (5_000, 2) if request.config.getoption("--long") else (120, 1)
    rng, names, store = np.random.default_rng(0), {}, SegmentStore(tmp_path)
    small_tiles.shrink(monkeypatch.setattr)
    for k, kind in enumerate(KINDS):
        model = make(kind)
        every = list(forgeries(model))
        share = n_files * (k + 1) // len(KINDS) - n_files * k // len(KINDS)
        chosen = [every[i] for i in np.resize(rng.permutation(len(every)), share)]  # of few, some twice
        for path, owner, name, new in chosen:
            before = owner.__dict__[name]
            owner.__dict__[name] = new
            try:
                number = f"{len(names):06d}"
                data = snapshots.pack(model, store if kind == "segments" else None)
                (tmp_path / f"{number}-{kind}.safetensors").write_bytes(data)
                names[number] = f"{kind}{path}"
            except (OverflowError, ValueError, TypeError, AttributeError, IndexError):
                assert kind == "segments", path  # what is cut is worked out anew before, here of nonsense
            finally:
                owner.__dict__[name] = before
    assert len(names) > 0.9 * n_files
    with ThreadPoolExecutor(n_workers) as pool:
        parts = pool.map(lambda first: tried(tmp_path, first, n_workers), range(n_workers))
    found = {number: outcome for part in parts for number, outcome in part.items()}
    told = Counter("ended the process" if outcome is None else outcome.split()[0] for outcome in found.values())
    print(f"{len(found):,} forged files: {dict(told)}")
    print("\n".join(f"{names[number]}: {outcome}" for number, outcome in found.items() if outcome not in HARMLESS))
    assert [names[number] for number, outcome in found.items() if outcome is None] == [], dict(told)
    assert told["refused"] > len(found) / 3


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_were_saved_are_taken(tmp_path, kind):
    model = make(kind)
    snapshots.unpack(snapshots.pack(model))
    pickle.loads(pickle.dumps(model))


FORGED = {
    "TreeStack.feature": lambda model: model.booster_.stack.feature.fill(2**30),
    "Booster.replay._leaf_ids": lambda model: model.booster_.replay._leaf_ids.fill(60_000),
    "Booster.eta": lambda model: setattr(model.booster_, "eta", model.booster_.eta[:1]),
    "Linear.low": lambda model: setattr(model.booster_.base, "low", np.zeros(0)),
    "Bins.n_edges": lambda model: model.booster_.replay.bins.n_edges.fill(2**30),
    "Hedge.weights": lambda model: setattr(model.committee_.hedge, "weights", np.zeros(1, np.float32)),
    "max_depth": lambda model: setattr(model.booster_.stack, "max_depth", 40),
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("way", ["file", "pickle"])
def test_the_error_names_what_is_wrong(name, way):
    model = copy.deepcopy(make("regressor"))
    FORGED[name](model)
    with pytest.raises(SnapshotError, match=name.replace(".", r"\.")):
        snapshots.unpack(snapshots.pack(model)) if way == "file" else pickle.loads(pickle.dumps(model))
