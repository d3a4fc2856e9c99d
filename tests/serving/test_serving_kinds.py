"""Over HTTP, values are what the model knows columns to hold: dates in whatever way, text that looks like numbers."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from served import ARROW, SMALL, arrow, serving

from streamboost import SGBRegressor
from streamboost.persistence.object_graph import same_state

AT = [datetime(2024, 5, 1) + timedelta(minutes=137 * k) for k in range(200)]
IDS = [str(k % 7) for k in range(200)]
Y = np.array([10.0 * (at.hour > 11) + int(i) for at, i in zip(AT, IDS, strict=True)])
TABLE = pa.table({"at": pa.array(AT, pa.timestamp("us")), "id": IDS})


@pytest.fixture
def trained():
    model = SGBRegressor(**SMALL)
    model.learn(TABLE, Y)
    return model


def ways():
    """The same rows as clients send them."""
    for form in ("{}", "{}Z", "{}.000+00:00"):
        yield [{"at": form.format(at.isoformat()), "id": i} for at, i in zip(AT, IDS, strict=True)]
    yield [{"at": f"{at + timedelta(hours=2)}+02:00", "id": int(i)} for at, i in zip(AT, IDS, strict=True)]
    yield [{"at": (at - datetime(1970, 1, 1)).total_seconds(), "id": i} for at, i in zip(AT, IDS, strict=True)]


def tables():
    numbers = pa.array([int(i) for i in IDS])
    yield TABLE
    yield TABLE.set_column(0, "at", TABLE["at"].cast(pa.timestamp("ns", "Asia/Tokyo"))).set_column(1, "id", numbers)
    yield TABLE.set_column(0, "at", TABLE["at"].cast(pa.string()))


def test_the_same_rows_are_predicted_the_same_in_every_way(trained, tmp_path):
    expected = trained.predict(TABLE).tolist()
    with serving(tmp_path / "m", trained) as served:
        for rows in ways():
            assert served.post("/predict", json={"rows": rows}).json()["predictions"] == expected
            assert served.post("/predict", json={"row": rows[7]}).json()["predictions"] == expected[7:8]
        for table in tables():
            assert served.post("/predict", content=arrow(table), headers=ARROW).json()["predictions"] == expected


def test_the_same_rows_are_learned_the_same_in_every_way_and_after_a_restart(trained, tmp_path):
    twin = SGBRegressor(**SMALL)
    for _ in range(2):
        twin.learn(TABLE, Y)
    for number, rows in enumerate(ways()):
        with serving(tmp_path / str(number), trained) as served:
            served.learn([row | {"y": y} for row, y in zip(rows, Y.tolist(), strict=True)])
        with serving(tmp_path / str(number), None) as served:
            assert same_state(served.live.model, twin)
    for number, table in enumerate(tables()):
        with serving(tmp_path / f"arrow {number}", trained) as served:
            body = arrow(table.append_column("y", pa.array(Y)))
            assert served.post("/learn", content=body, headers=ARROW).status_code == 200
            assert same_state(served.live.model, twin)


def test_late_labels_are_learned_with_dates_as_they_were_written(trained, tmp_path):
    twin = SGBRegressor(**SMALL)
    for X, y in ((TABLE, Y), (TABLE.slice(0, 3), Y[:3])):
        twin.learn(X, y)
    with serving(tmp_path / "m", trained) as served:
        rows = [{"at": at.isoformat() + "Z", "id": int(i)} for at, i in zip(AT[:3], IDS[:3], strict=True)]
        assert served.post("/predict", json={"rows": rows, "keys": ["a", "b", "c"]}).status_code == 200
        labels = [{"key": key, "target": y} for key, y in zip("abc", Y.tolist(), strict=False)]
        assert served.post("/label", json={"labels": labels}).json()["learned"] == 3
        assert same_state(served.live.model, twin)


def test_text_that_is_no_date_is_refused_and_changes_nothing(trained, tmp_path):
    with serving(tmp_path / "m", trained) as served:
        before = served.state()
        for path, row in (("/predict", {"at": "soon"}), ("/learn", {"at": "soon", "y": 1.0})):
            answer = served.post(path, json={"rows": [row]})
            assert answer.status_code == 422
            assert "column 'at' is 'soon'" in answer.json()["error"]
            assert "Write a date as 2024-05-01" in answer.json()["error"]
        assert served.state() == before
