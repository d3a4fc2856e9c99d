"""The mutants still fit the source: each old text occurs exactly once, and what takes its place is Python."""

import ast
from pathlib import Path

from catalogue import MUTANTS

ROOT = Path(__file__).parents[2]


def test_every_mutant_can_be_applied():
    sources = {mutant.path: (ROOT / mutant.path).read_text(encoding="utf-8") for mutant in MUTANTS}
    stale = [mutant.name for mutant in MUTANTS if sources[mutant.path].count(mutant.old) != 1]
    assert stale == [], "adapt them in tests/mutants/catalogue.py to what the source says now"
    for mutant in MUTANTS:
        source = sources[mutant.path]
        assert ast.dump(ast.parse(source.replace(mutant.old, mutant.new))) != ast.dump(ast.parse(source))


def test_names_are_told_apart_and_tests_are_there():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert all((ROOT / tests).exists() for tests in mutant.tests.split())
