"""Print pip constraints with the lowest version of everything that pyproject.toml asks for, extras and all.

    python .ci/lowest_versions.py > FILE

What comes along with those has the version of constraints.txt, so that the outcome changes with this repository only.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIED = {"llvmlite", "polars-runtime-32"}  # whose version follows from that of the package they belong to
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[[\w,]*\])?(>=(?P<lowest>[\w.]+))?(,<[\w.]+)?\s*(;.*)?")


def key(name: str) -> str:
    """Return a package's name as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
lowest = {}
for requirement in sum(project["optional-dependencies"].values(), project["dependencies"]):
    found = REQUIREMENT.fullmatch(requirement)
    if found is None or (found["lowest"] is None and found["name"] != project["name"]):
        raise SystemExit(f"pyproject.toml asks for {requirement!r}, expected NAME>=VERSION.")
    if found["lowest"] and lowest.setdefault(key(found["name"]), found["lowest"]) != found["lowest"]:
        raise SystemExit(f"pyproject.toml has two lower bounds of {found['name']}. Make them one.")
pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
along = {name: version for name, version in pins.items() if key(name) not in lowest.keys() | TIED}
print("\n".join(f"{name}=={version}" for name, version in (lowest | along).items()))
