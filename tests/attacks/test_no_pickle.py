"""No pickle where something is loaded: a file from a stranger runs no code."""

import ast
from pathlib import Path

import streamboost

PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "skops"}
ALLOWED = {
    "persistence/object_graph.py": {"dumps"},  # compares what cannot be saved; reads none
    "testing/assertions.py": {"dumps", "loads", "PicklingError"},  # a round trip of what a developer's test has made
}


def pickling(path):
    """Return what a module takes from modules that pickle, and calls that may unpickle under another name."""
    tree, found = ast.parse(path.read_text()), set()
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] in PICKLES:
                    names[one.asname or one.name] = True
                    found.add("import")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PICKLES:
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            found.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "weights_only"):
            if getattr(node.value, "value", None) is (node.arg == "allow_pickle"):
                found.add(node.arg)
        elif isinstance(node, ast.Constant) and node.value in PICKLES - {"skops", "marshal"}:
            found.add(f"the name {node.value}")
    return found - {"import"}


def test_pickle_is_used_where_it_is_allowed_and_nowhere_else():
    root = Path(streamboost.__file__).parent
    found = {path.relative_to(root).as_posix(): pickling(path) for path in root.rglob("*.py")}
    assert {name: uses for name, uses in found.items() if uses} == ALLOWED
