"""One page of all that was found: *paper | ours | why they differ*, and the pictures.

In goes a folder of records; out comes ``report.html`` beside them. No number is computed here: each comes from a JSON
file in that folder, through the ``compare`` and ``draw`` of its experiment.
"""

from __future__ import annotations

import hashlib
import html
import json
from pathlib import Path

from experiments import records, registry
from experiments.records import Record, Row
from streamboost.theory import report as theory_report
from streamboost.theory.report import figures, shell

TITLE = "Gradient boosting on stochastic data streams: the experiments again"
DRAWS = (Path(theory_report.__file__),)  # beside the experiment itself
PENDING = {
    "table_1": "Table 1: test errors of networks, batch and streaming boosting",
    "figure_2": "Figure 2: test loss against computation",
}

CSS = """
h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid var(--faint); padding-top: 1rem }
.small { font-size: .85rem; opacity: .85 } .table { overflow-x: auto } a { color: var(--accent) }
th { border-bottom: 1px solid var(--faint); padding: .35rem .6rem; text-align: left; vertical-align: top;
  background: var(--soft) }
table.wide { table-layout: fixed } table.wide th:nth-child(1) { width: 22% } table.wide th:nth-child(2) { width: 14% }
.warning { border-left: 4px solid #d97706; background: var(--soft); padding: .5rem .8rem }
@media (max-width: 40rem) {
  table.wide, table.wide tbody, table.wide tr, table.wide td { display: block; width: 100% }
  table.wide tr.head { display: none } table.wide td::before { content: attr(data-head) " "; font-weight: 600 }
  table.wide td:first-child { font-weight: 600 } table.wide td:empty { display: none }
  table.wide td { border: 0; padding: .15rem 0 } table.wide tr { border-bottom: 1px solid var(--faint);
    padding: .5rem 0 }
}
"""


def write(folder: Path) -> Path:
    """Write the page of a folder of records, and give its place."""
    found = {name: records.load(folder / f"{name}.json") for name in registry.available()}
    parts = [f"<h1>{html.escape(TITLE)}</h1>", _opening(found)]
    for name in registry.NAMES:
        record = found.get(name)
        if record is not None:
            parts.append(_section(name, record, folder))
    file = folder / "report.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(shell(TITLE, "".join(parts), CSS), encoding="utf-8")
    return file


def _opening(found: dict[str, Record | None]) -> str:
    text = (
        "<p class='lead'>Hu, Sun, Venkatraman, Hebert and Bagnell, <em>Gradient Boosting on Stochastic Data "
        "Streams</em>, AISTATS 2017, run again with streamboost. The paper gives its curves as pictures without "
        "numbers; where it gives numbers, they stand beside ours. Every number of ours comes from a JSON file that "
        "the run wrote beside this page.</p>"
    )
    modes = {record["mode"] for record in found.values() if record is not None}
    if "quick" in modes:
        text += "<p class='warning'>Quick runs: small sizes, one seed. They show that it works, not how well.</p>"
    absent = [f"<b>{html.escape(_title(name))}</b>: not run yet." for name in registry.NAMES if not found.get(name)]
    cases = [(case["what"], case["why"]) for record in found.values() for case in (record or {}).get("not_run", [])]
    absent += [f"<b>{html.escape(what)}</b>: not run. {html.escape(why)}" for what, why in dict.fromkeys(cases)]
    if absent:
        text += f"<div class='warning'><b>What is not here</b><ul>{''.join(f'<li>{a}</li>' for a in absent)}</ul></div>"
    return text


def _title(name: str) -> str:
    return registry.load(name).TITLE if name in registry.available() else PENDING.get(name, name)


def _section(name: str, record: Record, folder: Path) -> str:
    module = registry.load(name)
    drawn = [
        ((folder / f"{picture}.svg").read_text(encoding="utf-8"), caption)
        for picture, caption in pictures(name, record, folder)
    ]
    return (
        f"<h2 id='{name}'>{html.escape(module.TITLE)}</h2><p>{html.escape(module.INTRODUCTION)}</p>"
        f"{comparison(module.compare(record))}{figures(drawn)}{_circumstances(name, record, folder)}"
    )


def pictures(name: str, record: Record, folder: Path) -> list[tuple[str, str]]:
    """The names and captions of an experiment's pictures, drawn again if the record or what draws it has changed."""
    file = folder / f"{name}.pictures.json"
    content = json.dumps([record, records.source(name)["experiment"], records.digest(*DRAWS)], sort_keys=True)
    fingerprint = hashlib.sha256(content.encode()).hexdigest()
    kept = records.load(file)
    if kept is None or kept["of"] != fingerprint or not _are_there(kept["pictures"], folder):
        kept = {"of": fingerprint, "pictures": registry.load(name).draw(record, folder)}
        records.save(kept, file)
    return [(picture, caption) for picture, caption in kept["pictures"]]


def _are_there(drawn: list[tuple[str, str]], folder: Path) -> bool:
    return all((folder / f"{name}.{kind}").exists() for name, _ in drawn for kind in ("png", "svg"))


def comparison(rows: list[Row]) -> str:
    """Lines *paper | ours | why they differ* as a table; on a phone each line becomes a block."""
    heads = ("", "paper", "ours", "why they differ")
    top = "".join(f"<th>{head}</th>" for head in heads)
    lines = "".join(
        "<tr>"
        + "".join(f"<td data-head='{head}'>{html.escape(cell)}</td>" for head, cell in zip(heads, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<div class='table'><table class='wide'><tr class='head'>{top}</tr>{lines}</table></div>"


def _circumstances(name: str, record: Record, folder: Path) -> str:
    versions = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    changed = (
        ""
        if record["source"]["experiment"] == records.source(name)["experiment"]
        else " Its source has changed since: run it again to be sure."
    )
    for other, took in record.get("took", {}).items():
        now = records.load(folder / f"{other}.json")
        if now is None or records.fingerprint(now) != took:
            changed += f" It took over runs of {other} that are not those above: run it again to be sure."
    seeds = ", ".join(map(str, record["seeds"]))
    text = (
        f"{record['mode']} run of {record['date']}, {record['seconds']:g} s, seeds {seeds}; {versions}, Python "
        f"{record['python']}; source {record['source']['experiment']}, library {record['source']['library']}.{changed}"
    )
    return f"<p class='small'>{html.escape(text)} Numbers: <a href='{name}.json'>{name}.json</a>.</p>"
