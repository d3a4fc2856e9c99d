"""Write the golden files of the present format version; those of earlier versions are never written again.

``PYTHONPATH=tests python tests/golden/make.py`` refuses to overwrite: a file here must load for ever, and say what it
said.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tiles import shrink

from streamboost import SGBClassifier, SGBRegressor
from streamboost.evaluation.scorebook import ScoreBook
from streamboost.metrics import BY_NAME
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore
from streamboost.persistence.snapshots import VERSION, VERSION_WITH_SEGMENTS, load, save
from streamboost.runs.guard import Guard

FOLDER = Path(__file__).parent
SMALL = {"n_estimators": 4, "max_depth": 3, "memory": (32, 64), "random_state": 0, "new_columns": "grow"}


def rows() -> pa.Table:
    """Numbers, gaps and text."""
    rng = np.random.default_rng(1)
    n = 400
    x, place = rng.normal(size=n).round(3), rng.choice(["north", "south", "naïve"], n)
    gaps = np.where(rng.uniform(size=n) < 0.2, np.nan, rng.normal(size=n).round(3))
    return pa.table({"x": x, "gaps": gaps, "place": place, "y": (x + 2.0 * (place == "north")).round(3)})


def models(table: pa.Table) -> dict[str, object]:
    """One of each kind, all having learned the table."""
    X, y = table.drop_columns(["y"]), table["y"].to_numpy()
    named = np.where(y > 2, "high", np.where(y > 0, "middle", "low"))
    found = {
        "regressor": SGBRegressor(**SMALL),
        "quantile": SGBRegressor("quantile", **SMALL),
        "linear": SGBRegressor(learner="linear", n_estimators=4, random_state=0),
        "networks": SGBRegressor(learner="mlp", n_estimators=12, random_state=0, iterate="polynomial"),
        "classifier": SGBClassifier(**SMALL),
    }
    for name, model in found.items():
        model.learn(X, named if name == "classifier" else y)
    return found


def checkpoint(model: object) -> Checkpoint:
    """A model that has learned the table, as a run keeps it."""
    state = {"guard": Guard(), "book": ScoreBook([BY_NAME["mae"]], every=10, window=5), "target": "y"}
    return Checkpoint(model, {"file": "rows.csv", "row": 400}, 400, state)


def check_free(path: Path) -> Path:
    """Refuse to write over a file or directory."""
    if path.exists():
        raise SystemExit(f"{path} is there already, and stays as it is.")
    return path


def write_files(folder: Path) -> None:
    """Write the files, and what the models say of the first rows."""
    table = rows()
    answers = {"x": table["x"], "gaps": table["gaps"], "place": table["place"]}
    for name, model in models(table).items():
        save(checkpoint(model), check_free(folder / f"{name}-v{VERSION}.safetensors"))
        answers[name] = pa.array(model.predict(table.drop_columns(["y"])).tolist())
    pq.write_table(pa.table(answers).slice(0, 40), folder / f"answers-v{VERSION}.parquet")


def write_directory(folder: Path) -> None:
    """Write a directory whose checkpoint has segments: what the file of the regressor holds."""
    directory = check_free(folder / f"regressor-v{VERSION_WITH_SEGMENTS}")
    with pytest.MonkeyPatch.context() as patched:
        shrink(patched.setattr)
        with CheckpointStore(directory) as store:
            store.save(load(folder / f"regressor-v{VERSION}.safetensors"))
    (directory / "lock").unlink()


def main(folder: Path = FOLDER) -> None:
    """Write all of it; two versions, as files without segments are of the older one."""
    write_files(folder)
    write_directory(folder)


if __name__ == "__main__":
    main()
