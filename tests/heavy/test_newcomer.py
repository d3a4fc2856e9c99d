"""A newcomer: a fresh installation of root's, read-only, and a user without a name or a home goes through the README.

Needs root, to become somebody else, and an interpreter of this version that others may run.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
NOBODY = {"user": 54321, "group": 54321, "extra_groups": []}  # whom no system knows by name
EXAMPLES = """
import doctest, sys
flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
sys.exit(doctest.testfile(sys.argv[1], module_relative=False, optionflags=flags).failed)
"""
FIRST = """
import time
begin = time.monotonic()
import numpy as np
from streamboost import SGBRegressor
from streamboost.kernels.progress import clock
X = np.random.default_rng(0).random((300, 3))
SGBRegressor().fit(X, X[:, 0]).predict(X)
assert clock.seconds == 0.0
assert time.monotonic() - begin < 3.0, time.monotonic() - begin
"""
pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else"
)


def interpreter():
    """Return an interpreter of this version that others may run, or None."""
    version = "{}.{}".format(*sys.version_info)
    for found in (
        getattr(sys, "_base_executable", None),
        f"/usr/bin/python{version}",
        f"/usr/local/bin/python{version}",
    ):
        if found and Path(found).exists():
            try:
                done = subprocess.run([found, "-c", "import ssl"], cwd="/", env={}, check=False, **NOBODY)
            except PermissionError:
                continue
            if done.returncode == 0:
                return found
    return None


@pytest.fixture(scope="module")
def home():
    """A folder that others can look into, as those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def installed(home):
    """The programs of a fresh installation that its users cannot write to."""
    python = interpreter()
    if python is None:
        pytest.skip("there is no interpreter that others may run")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (home / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, home / "clone" / name)
    subprocess.run([python, "-m", "venv", "--without-pip", home / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "venv" / "bin" / "python", "--quiet", "install"]
    subprocess.run([*pip, "-c", "constraints.txt", ".[serve,river]"], cwd=home / "clone", check=True)
    subprocess.run(["chmod", "-R", "a-w,a+rX", home / "clone", home / "venv"], check=True)
    return home / "venv" / "bin"


@pytest.fixture
def run(home, installed):
    """Run a program as somebody without a name or a home; return what is said on standard error."""
    work, temporary = home / "work", home / "temporary"
    for folder in (work, temporary):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(0o700)
        os.chown(folder, NOBODY["user"], NOBODY["group"])
    settings = {"PATH": f"{installed}:/usr/bin:/bin", "TMPDIR": str(temporary)}  # no HOME, nor anything else

    def run(*words, **more):
        words = ["sh", "-c", words[0]] if len(words) == 1 else [installed / words[0], *words[1:]]
        done = subprocess.run(words, cwd=work, env=settings, capture_output=True, text=True, **NOBODY, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (work / "~").exists()
        return done.stderr

    run.work, run.settings = work, settings
    return run


def write_rows(work):
    rng = np.random.default_rng(0)
    (work / "rows").mkdir()
    for k, path in enumerate(["rows/1.parquet", "rows/2.parquet", "tomorrow.csv"]):
        X = rng.random((300, 3))
        table = pa.table({"size": X[:, 0], "age": X[:, 1], "noise": X[:, 2], "price": 3 * X[:, 0] - X[:, 1] + k})
        (pq.write_table if path.endswith("parquet") else pyarrow.csv.write_csv)(table, work / path)
    (work / "tokens").write_text("0123456789abcdef0123456789abcdef admin\n")
    for path in (work, *work.rglob("*")):
        os.chown(path, NOBODY["user"], NOBODY["group"])


def serve(command, run):
    """Start a server, wait until it is well, and end it."""
    words = ["sh", "-c", f"exec {command} --port 0"]
    with subprocess.Popen(
        words, cwd=run.work, env=run.settings, stderr=subprocess.PIPE, text=True, **NOBODY
    ) as server:  # fmt: skip
        said = ""
        while not (found := re.search(r"serving (http://\S+?)/? \(", said)):
            said += (line := server.stderr.readline())
            assert line, said
        with urllib.request.urlopen(f"{found[1]}/healthz") as answer:
            assert answer.status == 200
        server.terminate()
        assert server.wait(60) == 0


def test_the_readme_is_gone_through_from_top_to_bottom(run, home, installed):
    readme = home / "clone" / "README.md"
    before = time.monotonic()
    run("streamboost", "--version")
    assert time.monotonic() - before < 3.0
    warned = run("python", "-c", EXAMPLES, readme)
    assert warned.count("RuntimeWarning") == 1
    assert "Set NUMBA_CACHE_DIR to a folder that this user can write to" in warned
    write_rows(run.work)
    commands = re.findall(r"^    (streamboost .*?)(?:  +#.*)?$", readme.read_text(), re.MULTILINE)
    assert [words.split()[1] for words in commands] == ["warmup", "run", "run", "run", "run", "inspect", "serve"]
    for command in commands:
        if "serve" in command:
            serve(command, run)
        elif "kafka:" not in command:
            run(command.replace("--dashboard", "--dashboard --dashboard-port 0"))
    assert sorted(path.name for path in run.work.iterdir()) == ["rows", "said", "shop", "tokens", "tomorrow.csv"]


def test_what_root_has_compiled_serves_everybody(run, installed):
    subprocess.run(["chmod", "-R", "u+w", installed.parent], check=True)
    settings = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    subprocess.run([installed / "streamboost", "warmup"], cwd="/", env=settings, check=True)
    subprocess.run(["chmod", "-R", "a-w", installed.parent], check=True)
    assert run("python", "-W", "error", "-c", FIRST) == ""
    write_rows(run.work)
    assert "Warning" not in run("streamboost run tomorrow.csv --target price --model m -q")
    assert not list(Path(run.settings["TMPDIR"]).iterdir())
