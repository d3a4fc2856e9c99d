"""The mutants still fit the source: each old text occurs exactly once, and what takes its place is Python."""

import ast
from pathlib import Path

import pytest
from catalogue import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted({mutant.path for mutant in MUTANTS}))
def test_every_mutant_of_a_file_can_be_applied(path):
    source = (ROOT / path).read_text(encoding="utf-8")
    for mutant in MUTANTS:
        if mutant.path == path:
            assert source.count(mutant.old) == 1, f"{mutant.name}: adapt it in tests/mutants/catalogue.py"
            assert ast.dump(ast.parse(source.replace(mutant.old, mutant.new))) != ast.dump(ast.parse(source))


def test_names_are_told_apart_and_tests_are_there():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert all((ROOT / tests).exists() for tests in mutant.tests.split())
