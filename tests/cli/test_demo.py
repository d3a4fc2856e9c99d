import sys

import numpy as np
import pytest
from matplotlib.image import imread
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from streamboost import SGBClassifier
from streamboost.cli import demo_command, main
from streamboost.datasets import load_electricity


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def stream():
    X, y, *_ = load_electricity()
    return X, y


def test_the_logistic_baseline_says_what_scikit_learns_does_row_by_row(stream):
    X, y = stream[0][:400], stream[1][:400]
    scaler, model = StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)
    theirs = np.zeros(len(y), dtype=int)
    for t in range(len(y)):
        x = X[t : t + 1]
        if t:
            theirs[t] = model.predict(scaler.transform(x))[0]
        model.partial_fit(scaler.partial_fit(x).transform(x), y[t : t + 1], classes=[0, 1])
    assert np.array_equal(demo_command.online_logistic(X, y), theirs)
    assert (theirs == y).mean() > 0.8


def test_the_demo_prints_the_accuracies_the_best_on_top_and_draws_a_picture(capsys, tmp_path, stream):
    assert main(["demo", "--rows", "600"]) == 0
    out, err = capsys.readouterr()
    X, y = stream[0][:600], stream[1][:600]
    found = {line[:20].strip(): float(line.split()[-2]) for line in out.splitlines()[3:7]}
    model = SGBClassifier(random_state=0)
    said = model.learn(X, y)
    assert (
        found
        == {
            "streamboost": round((said[1:] == y[1:]).mean(), 4),  # of the first row nothing could be said
            "one long memory": found["one long memory"],
            "logistic regression": round((demo_command.online_logistic(X, y) == y).mean(), 4),
            "same as last row": round((np.append(0, y[:-1]) == y).mean(), 4),
        }
    )
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert f"Picture: {tmp_path / 'demo.png'}" in out
    assert f"Page: {tmp_path / 'demo.html'}" in out
    assert "Next: your own rows" in out
    assert "--dashboard" in out
    page = (tmp_path / "demo.html").read_text()
    assert '"rows":600' in page.replace(" ", "")
    assert "nswprice" in page
    assert "600/600" in err  # the progress bar
    assert "600/600" not in out
    height, width = imread(tmp_path / "demo.png").shape[:2]
    assert width > height > 400


def test_without_a_picture_none_is_drawn(capsys, tmp_path):
    assert main(["demo", "--rows", "100", "--no-picture"]) == 0
    assert "Picture" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_line_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--rows", "100"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "No picture: The picture needs matplotlib.figure, which is not installed" in out
    assert "pip install 'streamboost[plot]'" in out
    assert not (tmp_path / "demo.png").exists()


def test_a_single_row_is_enough(capsys):
    assert main(["demo", "--rows", "1"]) == 0
    assert "1 rows" in capsys.readouterr().out


@pytest.mark.parametrize("rows", ["0", "-5", "1000000"])
def test_more_or_fewer_rows_than_there_are_is_refused(rows, capsys):
    assert main(["demo", "--rows", rows]) == 2
    assert "Invalid value for '--rows'" in capsys.readouterr().err
