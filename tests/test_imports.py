"""What comes along with an import, seen from a fresh process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import streamboost


def modules_after(code: str) -> list[str]:
    """The modules a fresh Python has loaded after running ``code``."""
    said = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(said.stdout)


def test_the_bare_import_waits_for_nobody_and_a_booster_not_for_scikit_learn():
    bare = modules_after("import streamboost; streamboost.skops_trusted_types()")
    assert not {"numpy", "numba", "sklearn", "pyarrow"} & set(bare)
    with_booster = modules_after("from streamboost import Booster")
    assert "numba" in with_booster
    assert "sklearn" not in with_booster
    assert "sklearn" in modules_after("import streamboost; streamboost.SGBRegressor")


def test_all_public_names_are_there_and_no_other():
    assert {name: getattr(streamboost, name).__name__ for name in streamboost.__all__} == {
        name: name for name in ("Booster", "KeyedModel", "SGBClassifier", "SGBRegressor", "load", "skops_trusted_types")
    }
    assert set(streamboost.__all__) < set(dir(streamboost))
    with pytest.raises(AttributeError, match="module 'streamboost' has no attribute 'GBRT'"):
        _ = streamboost.GBRT


def test_the_root_of_the_package_holds_few_files():
    files = [path.name for path in Path(streamboost.__file__).parent.glob("*.py")]
    assert len(files) <= 12, f"{sorted(files)}: a new one belongs into a package, see CONTRIBUTING.md"
