"""What the program says before it does anything, and that it says it without what it would need to do it."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from streamboost import SGBRegressor
from streamboost.cli import main
from streamboost.cli.app import app
from streamboost.cli.arguments import FORMATS, METRICS
from streamboost.cli.wording import in_options
from streamboost.metrics import BY_NAME
from streamboost.sources import FileSource, files

COMMANDS = sorted(command.name or command.callback.__name__ for command in app.registered_commands)
COMMANDS.remove("paper")  # whose words are for the experiments
HEAVY = {"numpy", "numba", "sklearn", "scipy", "pyarrow", "safetensors", "starlette", "msgspec", "asyncio"}


def asked(*words, **settings):
    """What a fresh process says, and the modules it has then."""
    code = (
        "import sys; from streamboost.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "finally: sys.stdout.flush(); print('\\0', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb"} | settings,
    )  # fmt: skip
    said, _, modules = done.stdout.partition("\0")
    return said + done.stderr, set(modules.split())


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["nothing"], *([name, "-h"] for name in COMMANDS)])
def test_nothing_heavy_is_imported_to_say_what_there_is(words):
    said, modules = asked(*words)
    assert said.strip()
    assert "streamboost.cli.app" in modules
    assert not modules & HEAVY


def test_the_words_that_are_named_are_those_there_are():
    assert tuple(BY_NAME) == METRICS
    assert set(FORMATS) == set(files.FORMATS.values())


def test_the_help_of_run_is_in_groups_with_examples_and_defaults():
    said, _ = asked("run", "--help")
    for words in ("Kept, to go on with", "Scores", "Bad rows", "[default: 30s]", "Examples:", "--target price --model"):
        assert words in said


@pytest.mark.parametrize("command", ["run", "predict", "inspect", "freeze", "compare", "theory", "serve"])
def test_a_command_without_words_says_what_it_takes(command, capsys):
    assert main([command]) == 2
    assert "Usage:" in "".join(capsys.readouterr())


# TAB


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of models and rows to be completed to, and to be in."""
    for name in ("mine/checkpoint-00000001.safetensors", "deep/served/live/checkpoint-00000001.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "mine.safetensors").touch()
    (tmp_path / "minutes.txt").touch()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "rows.csv").write_text("\ufeffpreis;qty;zip;a name\n1,5;2;3;4\n", encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text('{"price": 1, "qty": 2}\n')
    (tmp_path / "broken.jsonl").write_text("{\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


COMPLETED = [
    (["run", "x", "--ta"], {"--target", "--task"}),
    (["run", "x", "--task", ""], {"auto", "regression", "classification"}),
    (["run", "x", "--metric", "a"], {"accuracy", "auc"}),
    (["run", "x", "--format", "t"], {"tsv"}),
    (["run", "x", "--type", "zip=s"], {"zip=string"}),
    (["run", "x", "--type", "zip", "=", "s"], {"string"}),  # as Bash tears it
    (["run", "x", "--type", "zip", "="], {"float64", "int64", "string", "bool", "date32", "timestamp[us]"}),
    (["run", "rows.csv", "--target", ""], {"preis", "qty", "zip"}),
    (["run", "rows.jsonl", "--ignore", "q"], {"qty"}),
    (["predict", "rows.csv", "--keep", "z"], {"zip"}),
    (["compare", "a", "b", "--on", "rows.csv", "--target", "p"], {"preis"}),
    (["run", "broken.jsonl", "--target", ""], set()),
    (["run", "absent.csv", "--target", ""], set()),
    (["serve", "--task", "c"], {"classification"}),
    (["predict", "x", "--model", "m"], {"mine", "mine.safetensors"}),
    (["inspect", "mi"], {"mine", "mine.safetensors"}),
    (["inspect", "deep/"], {"deep/served"}),
    (["predict", "x", "--out", "m"], set()),  # the shell knows files
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("words", "offered"), COMPLETED)
def test_a_tab_completes_values(words, offered):
    settings = {"COMP_WORDS": "\n".join(["streamboost", *words]), "COMP_CWORD": str(len(words))}  # as Bash joins them
    said, modules = asked(_STREAMBOOST_COMPLETE="complete_bash", **settings)
    assert set(said.split()) == offered
    assert not modules & HEAVY


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("typed", "offered"), [("run rows.csv --target ", {"preis", "qty", "zip"}), ("run x --type zip=s", {"zip=string"})]
)
def test_other_shells_complete_values(typed, offered):
    settings = {"_TYPER_COMPLETE_ARGS": f"streamboost {typed}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert set(asked(_STREAMBOOST_COMPLETE="complete_fish", **settings)[0].split()) == offered


@pytest.mark.usefixtures("folder")
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no Bash")
def test_bash_itself_completes_values(tmp_path):
    program = tmp_path / "streamboost"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m streamboost \"$@\"\n")
    program.chmod(0o755)
    script = asked("--show-completion", "bash")[0].replace("\r", "")
    for words, offered in [each for each in COMPLETED if "--type" in each[0] or "--target" in each[0]]:
        quoted = " ".join(map(shlex.quote, ["./streamboost", *words]))
        call = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _streamboost_completion ./streamboost"
        said = subprocess.run(
            ["bash", "--norc", "-c", f'{script}\n{call}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'],
            capture_output=True, text=True, check=True, env=os.environ | {"TERM": "dumb"},
        ).stdout  # fmt: skip
        assert set(said.split()) == offered, words


# Wrong words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'? Try: streamboost --help"),
        (["run", "{}", "--tarket", "y"], "Did you mean '--target'?"),
        (["run", "{}", "--target", "yy"], "Did you mean 'y'?"),
        (["run", "{}", "--target", "y", "--task", "regresion"], "Did you mean 'regression'?"),
        (["run", "{}", "--target", "y", "--metric", "rsme"], "Did you mean 'rmse'?"),
        (["run", "{}", "--target", "y", "--metric", "RMSE"], "--metric 'RMSE' is unknown"),
        (["run", "{}", "--target", "y", "--option", "max_dept=3"], "Did you mean 'max_depth'?"),
        (["run", "{}", "--target", "y", "--option", "loss=hubert"], "Did you mean 'huber'?"),
        (["run", "{}", "--target", "y", "--option", "learner=tre"], "Did you mean 'tree'?"),
        (["run", "{}", "--target", "y", "--option", "base=linaer"], "Did you mean 'linear'?"),
        (["run", "{}", "--target", "y", "--option", "max_features=sqr"], "Did you mean 'sqrt'?"),
        (["run", "{}", "--target", "y", "--format", "cvs"], "--format is 'cvs', expected one of 'arrow', 'csv'"),
        (["run", "{}", "--target", "y", "--format", "cvs"], "Did you mean 'csv'?"),
        (["run", "{}", "--target", "y", "--encoding", "latn-1"], "Did you mean 'latin-1'?"),
        (["run", "{}", "--target", "y", "--type", "city=int65"], "Did you mean 'int64'?"),
        (["run", "{}", "--target", "y", "--names", "x,y"], "Pass --format if the file is of another kind"),
        (["run", "{}.folder/rows", "--target", "y"], "rows does not exist. Look for a typo"),
        (["run", "{}", "--target", "y", "--type", "citty=string"], "Did you mean 'city'?"),
        (["run", "{}", "--target", "y", "--type", "city=word"], "--type is city=word, expected a type such as string"),
        (["run", "{}", "--target", "y", "--strict"], "leave out --strict, or read the column as text from the start "
         "with --type city=string."),
        (["predict", "{}", "--model", "{}.model"], "Mend the row, or read the column as text from the start"),
        (["run", "shipped:abalne", "--target", "y"], "Did you mean 'abalone'?"),
        (["serve", "--model", "{}.new", "--task", "clasification"], "Did you mean 'classification'?"),
    ],
)  # fmt: skip
def test_errors_speak_of_options_and_suggest_the_nearest_word(words, sentence, tmp_path, capsys):
    file = tmp_path / "rows.csv"
    file.write_text("x,city,y\n" + "".join(f"{k},{k % 3},{k / 7}\n" for k in range(300)) + "1,Bonn,2.5\n")
    model = SGBRegressor(n_estimators=2, memory=16)
    model.learn(pa.table({"x": [0.0], "city": [1.0]}), [1.0])
    model.save(f"{file}.model")
    assert main([word.format(file) for word in words]) in (1, 2)
    error = capsys.readouterr().err
    assert sentence in error
    for word in ("='", "types[", "=...", "=["):
        assert word not in error


def test_every_way_out_of_a_bad_row_is_one_of_the_command_line():
    for path in Path(files.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            if "pass on_bad='skip'" in line and "SKIP =" not in line:
                assert "on_bad" not in in_options(line), line
    with pytest.raises(ValueError, match="Pass format='csv'") as refusal:
        FileSource("rows.xls")
    assert in_options(str(refusal.value)).endswith("Pass --format csv, for example.")
