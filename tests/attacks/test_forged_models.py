"""Models forged with a valid checksum: refused with the name of the array, and never the end of the process."""

import copy
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forge import KINDS, forgeries, make

from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots


def limited():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tried(directory):
    """Use every forgery of a directory in another process; return what became of each, None of one that ended it."""
    found, n = {}, len(list(directory.glob("*.safetensors")))
    while len(found) < n:
        command = [sys.executable, str(Path(__file__).parent / "forge.py"), str(directory), str(len(found))]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, timeout=1800, check=False)
        lines = [line.partition(" ") for line in done.stdout.splitlines()]
        found |= {name: outcome or None for name, _, outcome in lines}
        assert lines, done.stderr
    return found


def test_no_forged_model_ends_the_process(tmp_path, request):
    is_long, rng, names = request.config.getoption("--long"), np.random.default_rng(0), {}
    for kind in KINDS:
        model = make(kind)
        every = list(forgeries(model))
        chosen = [every[i] for i in rng.permutation(len(every))[: 1500 if is_long else 10]]
        for path, owner, name, new in chosen:
            before = owner.__dict__[name]
            owner.__dict__[name] = new
            try:
                number = f"{len(names):06d}"
                (tmp_path / f"{number}.safetensors").write_bytes(snapshots.pack(model))
                names[number] = f"{kind}{path}"
            finally:
                owner.__dict__[name] = before
    found = tried(tmp_path)
    ended = [names[number] for number, outcome in found.items() if outcome is None]
    assert ended == [], f"{len(ended)} of {len(found)}"
    assert sum(outcome == "refused" for outcome in found.values()) > len(found) / 3


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
