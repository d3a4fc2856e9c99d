"""Tables and pictures of the results: who is ahead on which stream, and at what cost.

    python -m benchmarks.report [RESULTS ...] [--output FOLDER]

Reads JSON lines that ``benchmarks.run`` wrote; writes ``report.md``, ``error_over_rows.png`` and
``error_against_cost.png``, and prints the first table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from pathlib import Path

from benchmarks import compare, peers, streams
from benchmarks.compare import BATCH, OURS, Record
from benchmarks.run import RESULTS, read_results

Runs = dict[str, dict[str, Record]]  # by stream, by model
LOSSES = {"log_loss": "log loss", "calibration": "calibration error"}  # of probabilities


def title(model: str) -> str:
    """What a model is called; a variant by its own name."""
    return peers.PEERS[model].title if model in peers.PEERS else model


def figure(value: float) -> str:
    """Write a score to four digits."""
    if abs(value) >= 1e7:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write Markdown, numbers to the right, names to the left."""
    rule = ["---" if not i or not _is_numeric(rows, i) else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def _is_numeric(rows: list[list[str]], column: int) -> bool:
    return all(row[column].strip("*")[:1].isdigit() or row[column] == "–" for row in rows)


def in_order(runs: Runs) -> list[str]:
    """Give the streams that have runs: regression first, then as ``streams.NAMES`` has them."""
    known = [name for name in streams.NAMES if runs.get(name)]
    return sorted(known, key=lambda name: compare.measure(next(iter(runs[name].values()))) != "rmse")


def models_in_order(runs: Runs) -> list[str]:
    """Give the models that have runs: as ``PEERS`` has them, variants last."""
    met = dict.fromkeys(model for by_model in runs.values() for model in by_model)
    return [*[model for model in peers.PEERS if model in met], *[model for model in met if model not in peers.PEERS]]


# The first table: streamboost, the best streaming peer, and LightGBM.


def verdict_row(name: str, runs: dict[str, Record]) -> list[str]:
    """Tell one stream in a line; scores of unequal runs are over the rows they share."""
    ours, batch = runs.get(OURS), runs.get(BATCH)
    best = next(iter(compare.ranked_peers(runs)), None)
    kind = compare.measure(next(iter(runs.values())))
    cells = [name, "RMSE" if kind == "rmse" else kind]
    cells.append(figure(compare.score(ours)) if ours else "–")
    cells += [figure(compare.score(best)), title(best["model"])] if best else ["–", "–"]
    cells.append(figure(compare.score(batch)) if batch else "–")
    return [*cells, against(ours, best), against(ours, batch)]


def against(ours: Record | None, other: Record | None) -> str:
    """Say how streamboost stands beside another, and over how many rows if not over all."""
    if ours is None or other is None:
        return "–"
    value = compare.lead(ours, other)
    word = compare.verdict(value)
    by = f" by {abs(value):.1%}".replace("%", " %") if word != "tie" else ""
    rows = compare.shared_rows(ours, other)
    where = f" over the first {rows:,} rows" if rows < ours["n"] else ""
    return f"**{word}**{by}{where}"


def verdicts(runs: Runs) -> str:
    """Make the first table, and count its verdicts."""
    head = ["stream", "measure", OURS, "best streaming peer", "which", "LightGBM retrained"]
    rows = [verdict_row(name, runs[name]) for name in in_order(runs)]
    text = table([*head, "beside the best peer", "beside LightGBM"], rows)
    counts = Counter(row[-2].split("**")[1] for row in rows if row[-2] != "–")
    if counts:
        told = ", ".join(f"{word} on {counts[word]}" for word in ("ahead", "tie", "behind"))
        text += f"\n\nBeside the best streaming peer of each stream: {told} of {counts.total()} streams."
    return text


def probability_verdicts(runs: Runs, measure: str) -> str:
    """Tell a loss of probabilities, of streamboost, of the best streaming peer by it, and of LightGBM."""
    rows = []
    for name in in_order(runs):
        known = {m: r["score"][measure] for m, r in runs[name].items() if _has(r, measure)}
        rivals = {m: loss for m, loss in known.items() if compare.is_streaming_peer(runs[name][m])}
        if not known:
            continue
        cells = [name, figure(known[OURS]) if OURS in known else "–"]
        best = min(rivals, key=lambda m: rivals[m], default=None)
        cells += [figure(rivals[best]), title(best)] if best else ["–", "–"]
        rows.append([*cells, figure(known[BATCH]) if BATCH in known else "–"])
    head = [f"stream, {LOSSES[measure]}", OURS, "best streaming peer", "which", "LightGBM retrained"]
    return table(head, rows) if rows else ""


def _has(record: Record, measure: str) -> bool:
    return measure in record["score"] and record["done"] == record["n"]


# All models.


def scores_table(runs: Runs, task: str) -> str:
    """Give everyone's score on every stream of a task; the best in bold, rows reached in brackets if not all."""
    names = [name for name in in_order(runs) if next(iter(runs[name].values()))["task"] == task]
    models = [model for model in models_in_order(runs) if any(model in runs[name] for name in names)]
    best = {name: min(runs[name].values(), key=_rank)["model"] for name in names}
    return table(
        ["model", *names],
        [
            [title(model), *[score_cell(runs[name].get(model), best[name] == model) for name in names]]
            for model in models
        ],
    )


def probability_table(runs: Runs, measure: str) -> str:
    """Give everyone's loss of probabilities on every stream of classes, of whole runs; the least in bold."""
    known = {
        name: {m: r["score"][measure] for m, r in runs[name].items() if _has(r, measure)} for name in in_order(runs)
    }
    known = {name: losses for name, losses in known.items() if losses}
    rows = []
    for model in models_in_order(runs):
        told = [losses.get(model) for losses in known.values()]
        if any(loss is not None for loss in told):
            is_best = [loss == min(losses.values()) for loss, losses in zip(told, known.values(), strict=True)]
            cells = ["–" if loss is None else figure(loss) for loss in told]
            bold = [f"**{cell}**" if best else cell for cell, best in zip(cells, is_best, strict=True)]
            rows.append([title(model), *bold])
    return table(["model", *known], rows)


def _rank(record: Record) -> tuple[bool, float]:
    return record["done"] < record["n"], compare.error(record)


def score_cell(record: Record | None, is_best: bool) -> str:
    """Write one score."""
    if record is None:
        return "–"
    text = f"**{figure(compare.score(record))}**" if is_best else figure(compare.score(record))
    return text if record["done"] == record["n"] else f"{text} ({record['done']:,})"


def cost_table(runs: Runs) -> str:
    """Give CPU time per row, alone and as a ratio to streamboost's on the same stream, and the growth of memory."""
    rows = []
    for model in models_in_order(runs):
        records = [runs[name][model] for name in in_order(runs) if model in runs[name]]
        micro = statistics.median(cost(record) for record in records) * 1e6
        ratios = [cost(r) / cost(runs[r["stream"]][OURS]) for r in records if OURS in runs[r["stream"]]]
        memory = statistics.median(record["rss_growth_mb"] for record in records)
        n_stopped = sum(record["done"] < record["n"] for record in records)
        between = f"{ratio(min(ratios))} to {ratio(max(ratios))}" if ratios else "–"
        middle = ratio(statistics.median(ratios)) if ratios else "–"
        rows.append([title(model), f"{micro:,.0f}", middle, between, f"{max(memory, 0):.0f}", str(n_stopped)])
    head = ["model", "CPU µs a row", f"over {OURS}'s", "least to most", "memory growth, MB", "runs stopped"]
    return table(head, rows)


def ratio(value: float) -> str:
    """Write a ratio to two digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def cost(record: Record) -> float:
    """CPU seconds a row."""
    return max(record["cpu_s"], 1e-9) / record["done"]


def circumstances(runs: Runs) -> str:
    """Name versions and machine."""
    records = [record for by_model in runs.values() for record in by_model.values()]
    versions = sorted({f"{record['package']} {record['version']}" for record in records})
    machines = sorted({f"Python {record['python']} on {record['cpu']}" for record in records})
    return f"{', '.join(versions)}; {', '.join(machines)}."


def report(runs: Runs, rows: int, seed: int) -> str:
    """Write the whole page."""
    parts = [
        "# Beside other streaming learners",
        f"The first {rows:,} rows of each stream (or all, where there are fewer), seed {seed}, the same rows for "
        "everyone; each row is predicted, then learned. Default settings, ten members in a forest; LightGBM is trained "
        "anew at rows 100, 200, 400, 700 and every 1,000 rows, on all rows so far. Scores within 0.5 % of each other "
        "are a tie. Runs that were stopped are compared over the rows they share, and ranked if they got through half "
        "of them.",
        verdicts(runs),
        *(probability_verdicts(runs, measure) for measure in LOSSES),
        "![error over rows](error_over_rows.png)",
        "![error against cost](error_against_cost.png)",
        "## RMSE of everyone",
        scores_table(runs, "regression"),
        "## Accuracy of everyone",
        scores_table(runs, "classification"),
        "In brackets: rows reached, where a run was stopped.",
        *(part for m in LOSSES for part in (f"## {LOSSES[m].capitalize()} of everyone", probability_table(runs, m))),
        "Of whole runs, and of models that tell probabilities. The calibration error is how far the shares of right "
        "answers are from the probabilities that were promised, in 15 parts of the rows by the probability of the "
        "likeliest class; runs from before it was measured have none.",
        "## Cost",
        cost_table(runs),
        "Medians over the streams. CPU time is that of the whole process, all threads (for CapyMOA with the "
        "compilation and garbage collection of the virtual machine), while it goes through the stream; memory is what "
        "the process holds at the end beyond what it held at the start. River, CapyMOA and Vowpal Wabbit are called "
        "row by row, as they are made for; streamboost is handed 500 rows a call, which it learns one by one, and has "
        "loaded its compiled code before; LightGBM predicts 50 rows at a time.",
        circumstances(runs),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", nargs="*", type=Path, default=[RESULTS], metavar="RESULTS")
    parser.add_argument("--output", type=Path, default=RESULTS.parent, metavar="FOLDER")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    records = [record for file in options.results for record in read_results(file)]
    runs, stale = compare.current(records, options.rows, options.seed)
    if not runs:
        parser.error(f"no runs of {options.rows} rows and seed {options.seed} found. Run: python -m benchmarks.run")
    for record in stale:
        print(f"left out: {record['model']} saw other rows of {record['stream']}. Run it again.", file=sys.stderr)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "report.md").write_text(report(runs, options.rows, options.seed))
    draw(runs, options.output)
    print(verdicts(runs))


def draw(runs: Runs, folder: Path) -> None:
    """Draw both pictures, where matplotlib is installed."""
    try:
        from benchmarks import pictures
    except ModuleNotFoundError as absent:
        print(f"no pictures: {absent.name} is not installed. Run: pip install 'streamboost[plot]'", file=sys.stderr)
        return
    pictures.error_over_rows(runs, in_order(runs), folder / "error_over_rows.png")
    pictures.error_against_cost(runs, folder / "error_against_cost.png")


if __name__ == "__main__":
    main()
