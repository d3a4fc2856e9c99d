"""Write the golden files of the present format version; those of earlier versions are never written again.

``python tests/golden/make.py`` refuses to overwrite: a file here must load for ever, and say what it said.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamboost import SGBClassifier, SGBRegressor
from streamboost.evaluation.scorebook import ScoreBook
from streamboost.metrics import BY_NAME
from streamboost.persistence.checkpoints import Checkpoint
from streamboost.persistence.snapshots import VERSION, save
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


def main(folder: Path = FOLDER) -> None:
    """Write the files, and what the models say of the first rows."""
    table = rows()
    answers = {"x": table["x"], "gaps": table["gaps"], "place": table["place"]}
    for name, model in models(table).items():
        path = folder / f"{name}-v{VERSION}.safetensors"
        if path.exists():
            raise SystemExit(f"{path} is there already, and stays as it is.")
        state = {"guard": Guard(), "book": ScoreBook([BY_NAME["mae"]], every=10, window=5), "target": "y"}
        save(Checkpoint(model, {"file": "rows.csv", "row": 400}, 400, state), path)
        answers[name] = pa.array(model.predict(table.drop_columns(["y"])).tolist())
    pq.write_table(pa.table(answers).slice(0, 40), folder / f"answers-v{VERSION}.parquet")


if __name__ == "__main__":
    main()
