import sys

import numpy as np
import pytest
from matplotlib.image import imread
from river import dummy
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from streamboost import demo
from streamboost.datasets import load_electricity


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def stream():
    X, y, *_ = load_electricity()
    return X, y


def prequential(model, X, y):
    """What a River model says of every row before it learns it, 0 where it says nothing."""
    said = []
    for x, label in zip(X, y, strict=True):
        row = dict(enumerate(x))
        said.append(model.predict_one(row) or 0)
        model.learn_one(row, label)
    return np.array(said)


def test_the_simple_baselines_say_what_rivers_do(stream):
    X, y = stream[0][:500], stream[1][:500]
    assert np.array_equal(demo.same_as_last(y), prequential(dummy.NoChangeClassifier(), X, y.tolist()))
    ones = np.cumsum(y) - y
    is_settled = 2 * ones != np.arange(500)  # with both classes as frequent any answer will do
    theirs = prequential(dummy.PriorClassifier(), X, y.tolist())
    assert np.array_equal(demo.majority_so_far(y)[is_settled], theirs[is_settled])
    assert is_settled.mean() > 0.9


def test_the_logistic_baseline_says_what_scikit_learns_does_row_by_row(stream):
    X, y = stream[0][:400], stream[1][:400]
    scaler, model = StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)
    theirs = np.zeros(len(y), dtype=int)
    for t in range(len(y)):
        x = X[t : t + 1]
        if t:
            theirs[t] = model.predict(scaler.transform(x))[0]
        model.partial_fit(scaler.partial_fit(x).transform(x), y[t : t + 1], classes=[0, 1])
    assert np.array_equal(demo.online_logistic(X, y), theirs)
    assert (theirs == y).mean() > 0.8


def test_the_streams_own_contender_predicts_before_it_learns(stream):
    X, y = stream[0][:700], stream[1][:700].copy()
    said = demo.learn_with_progress(X, y, "ours", demo.single_booster())
    y[600:] = 1 - y[600:]  # only what was learned before a row may matter for it
    assert np.array_equal(demo.learn_with_progress(X, y, "ours", demo.single_booster())[:601], said[:601])
    assert (said[:600] == stream[1][:600]).mean() > 0.7


def test_the_demo_prints_a_table_of_the_accuracies_and_draws_a_picture(capsys, tmp_path, stream):
    assert demo.main(["--rows", "600"]) == 0
    out, err = capsys.readouterr()
    y = stream[1][:600]
    accuracy = np.mean(np.append(0, y[:-1]) == y)
    assert f"{accuracy:.4f}" in next(line for line in out.splitlines() if "same as last row" in line)
    assert all(name in out for name in ("streamboost", "logistic regression", "majority so far"))
    assert f"Picture: {tmp_path / 'demo.png'}" in out
    assert f"Page: {tmp_path / 'demo.html'}" in out
    assert "--dashboard" in out
    page = (tmp_path / "demo.html").read_text()
    assert '"rows":600' in page.replace(" ", "")
    assert "nswprice" in page
    assert "Next: your own rows" in out
    assert "rows/s" in err
    assert "rows/s" not in out
    height, width = imread(tmp_path / "demo.png").shape[:2]
    assert width > height > 400


def test_the_table_has_the_best_on_top(capsys):
    right = {demo.OURS: np.array([True, False]), "x": np.array([True, True]), "y": np.array([False, False])}
    demo.Console().print(demo.accuracy_table(right))
    out = capsys.readouterr().out
    assert out.index("x") < out.index(demo.OURS) < out.rindex("y")


def test_without_a_picture_none_is_drawn(capsys, tmp_path):
    assert demo.main(["--rows", "100", "--no-picture"]) == 0
    assert "Picture" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_line_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert demo.main(["--rows", "100"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "No picture: The picture needs matplotlib.figure, which is not installed" in out
    assert "pip install 'streamboost[plot]'" in out
    assert not (tmp_path / "demo.png").exists()


def test_a_single_row_is_enough(capsys):
    assert demo.main(["--rows", "1"]) == 0
    assert "1 rows" in capsys.readouterr().out


@pytest.mark.parametrize("rows", ["0", "-5", "1000000"])
def test_more_or_fewer_rows_than_there_are_is_refused(rows, capsys):
    with pytest.raises(SystemExit) as refused:
        demo.main(["--rows", rows])
    assert refused.value.code == 2
    assert f"--rows is {rows}, expected 1 to 45312" in capsys.readouterr().err
