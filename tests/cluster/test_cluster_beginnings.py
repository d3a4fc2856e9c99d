"""A cut knows the model it was made of."""

import numpy as np
import pytest

from streamboost import SGBRegressor
from streamboost.cluster import KeyedBooster, small_regressor
from streamboost.persistence import snapshots

ROWS, Y = [{"key": i % 2, "x": float(i)} for i in range(40)], np.arange(40.0)


def keyed(directory, model=None, key="key", **options):
    model = small_regressor(n_estimators=3) if model is None else model
    return KeyedBooster(key, model, directory=directory, **options)


@pytest.fixture(scope="module")
def prior():
    model = SGBRegressor(n_estimators=2, random_state=0)
    model.learn([{"x": row["x"]} for row in ROWS], Y)
    return model


def test_the_cut_of_another_model_is_refused(tmp_path):
    options = {"n_estimators": 3, "max_depth": 2, "random_state": 0}
    with keyed(tmp_path, SGBRegressor(**options)) as first:
        first.learn(ROWS, Y)
        cut = first.detach()
    with keyed(tmp_path, SGBRegressor(**{**options, "max_depth": 4})) as other, pytest.raises(ValueError) as refusal:  # noqa: PT011
        other.attach(cut)
    assert str(refusal.value) == (
        "max_depth is 4, but the cut was made with 2. Use the model it was made with, that is the same parameters (on "
        "the command line the same --option, --start-from and --seed as before), or name another directory to begin "
        "anew."
    )


def is_attached(cut, directory, **options):
    with keyed(directory, **options) as booster:
        booster.attach(cut)
        return booster.n_keys == 2


def test_keys_go_on_with_their_own_column_model_and_prior(prior, tmp_path):
    model = small_regressor(n_estimators=3, random_state=np.random.RandomState(1))
    with keyed(tmp_path, model, prior=prior) as booster:
        booster.learn(ROWS, Y)
        cut = booster.detach()
    given = {"model": model, "prior": prior}
    other = small_regressor(n_estimators=3, random_state=np.random.RandomState(2))
    for wrong, words in (
        ({"key": "x"}, "key is 'x', but the cut was made with 'key'.*the same --key as before"),
        ({"prior": None}, r"prior is None, but the cut was made with a SGBRegressor \(\w+\).*the same --option"),
        ({"model": other}, r"random_state is a RandomState \(\w+\), but .* a RandomState \(\w+\)"),
    ):
        with pytest.raises(ValueError, match=words):
            is_attached(cut, tmp_path, **{**given, **wrong})
    with pytest.raises(ValueError, match="Name the directory it was made in"):
        is_attached(cut, tmp_path / "another", **given)
    assert is_attached(cut, tmp_path, **given)
    assert is_attached(cut, tmp_path, **snapshots.load(tmp_path / "beginning.safetensors"))
