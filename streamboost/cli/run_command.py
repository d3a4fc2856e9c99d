"""``streamboost run``: learn a source row by row, watched, and safe to kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from streamboost.cli.arguments import (
    METRICS,
    ROWS,
    TASKS,
    Decimal,
    Delimiter,
    Encoding,
    Format,
    Names,
    Types,
    UsageError,
    examples,
    file_option,
    flag,
    option,
    usage_errors,
)
from streamboost.cli.completion import complete_columns, complete_models, complete_sources, one_of
from streamboost.cli.display import Dashboard, Screen, print_columns, print_error, print_summary, terminal

SOURCES = (
    "One or several: files, directories, globs, -, kafka://host/topic, redis://host/0/stream, synthetic:friedman, "
    "shipped:abalone."
)
WINDOW = 1000
MAX_BAD = "50%"
KEPT, MODEL, SCORES, BAD, KEYS, PARTS, WATCH = (
    "Kept, to go on with", "Model", "Scores", "Bad rows", "A model for each key", "Partitions", "Watching",
)  # fmt: skip
EXAMPLES = examples(
    "streamboost run shipped:electricity --target target --dashboard",
    "streamboost run 'days/*.csv' --target price --model prices",
    "streamboost run 'days/*.csv' --target price --model prices --resume",
    "streamboost run tomorrow.csv --model prices --continue",
    "streamboost run 'years/*.parquet' --then kafka://localhost/sales --target price --follow --model prices",
    "streamboost run - --format jsonl --target price --option max_depth=4 < rows",
    "streamboost run kafka://localhost/orders --target late --follow --model late",
    "streamboost run 'days/*.csv' --target price --key store --workers 4 --model prices",
)


def run(
    context: typer.Context,
    source: Annotated[list[str], typer.Argument(metavar="SOURCE", help=SOURCES, autocompletion=complete_sources)],
    then: Annotated[
        list[str] | None,
        option(
            "SOURCE is a history, fitted as a table; then go on with these rows. May be repeated.",
            "LIVE",
            complete=complete_sources,
        ),
    ] = None,
    target: Annotated[
        str | None, option("The column to predict; a run that goes on knows.", "COL", complete=complete_columns)
    ] = None,
    task: Annotated[
        str, option("regression, classification, or auto: as the first targets look.", "TASK", complete=one_of(TASKS))
    ] = "auto",
    as_json: Annotated[bool, flag("Print one JSON object at the end.", "--json")] = False,
    quiet: Annotated[bool, flag("Nothing on the way.", "--quiet", "-q")] = False,
    ignore: Annotated[
        list[str] | None,
        option("A column to leave out; may be repeated.", "COL", panel=ROWS, complete=complete_columns),
    ] = None,
    type: Types = None,
    format: Format = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    names: Names = None,
    follow: Annotated[bool, flag("Wait for more rows at the end, like tail -f.", "--follow", panel=ROWS)] = False,
    follow_rotation: Annotated[
        bool,
        flag("Follow one file that is renamed and begun anew, as logrotate does.", "--follow-rotation", panel=ROWS),
    ] = False,
    max_rows: Annotated[int | None, option("Stop after so many more rows.", "N", panel=ROWS, min=1)] = None,
    model: Annotated[
        Path | None,
        option(
            "Where checkpoints and quarantine live; without it, nowhere.", "DIR", panel=KEPT, complete=complete_models
        ),
    ] = None,
    resume: Annotated[bool, flag("Go on from the newest checkpoint, if there is one.", "--resume", panel=KEPT)] = False,
    go_on: Annotated[
        bool, flag("Go on with the model of --model on new rows: tomorrow's file.", "--continue", panel=KEPT)
    ] = False,
    checkpoint_every: Annotated[
        str, option("Rows (10000) or time (30s, 5m) between checkpoints.", "N", panel=KEPT)
    ] = "30s",
    predictions: Annotated[
        Path | None,
        file_option(
            "Write what was predicted of every row: Parquet parts, or CSV if the name ends in .csv.", "DIR", panel=KEPT
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        option("A parameter of the model, such as n_estimators=100; may be repeated.", "NAME=VALUE", panel=MODEL),
    ] = None,
    seed: Annotated[int | None, option("The model's random state; 0 if left out.", "N", panel=MODEL)] = None,
    start_from: Annotated[
        Path | None,
        option(
            "Begin with a saved model, or with that of another run.", "MODEL", panel=MODEL, complete=complete_models
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        option(
            f"One of {', '.join(METRICS)}; may be repeated. Those that suit the task if left out.",
            "NAME",
            panel=SCORES,
            complete=one_of(METRICS),
        ),
    ] = None,
    every: Annotated[int, option("Rows between reports.", "N", panel=SCORES, min=1)] = 1000,
    window: Annotated[
        int | None,
        option(
            f"How many of the latest rows windowed metrics look at; {WINDOW} if left out.", "N", panel=SCORES, min=1
        ),
    ] = None,
    strict: Annotated[bool, flag("End at the first bad row.", "--strict", panel=BAD)] = False,
    max_bad: Annotated[
        str, option("End when more rows than this are bad: a number, or a share such as 5%.", "N", panel=BAD)
    ] = MAX_BAD,
    key: Annotated[
        str | None,
        option("A model of its own for each value of this column.", "COL", panel=KEYS, complete=complete_columns),
    ] = None,
    workers: Annotated[
        int | None,
        option("Each file, Kafka partition or Redis stream is a run by itself; K at a time.", "K", panel=PARTS, min=1),
    ] = None,
    ray: Annotated[
        str | None, option("Place them on Ray: host:port, auto, or local to start one.", "ADDRESS", panel=PARTS)
    ] = None,
    dashboard: Annotated[bool, flag("Serve a page to watch the run on.", "--dashboard", panel=WATCH)] = False,
    dashboard_port: Annotated[int, option("Where; 0 for any free port.", "PORT", panel=WATCH, min=0, max=65535)] = 8765,
    report: Annotated[
        Path | None, file_option("Write the dashboard as one file at the end.", "HTML", panel=WATCH)
    ] = None,
    supervised: Annotated[bool, flag("Be watched over.", "--supervised", hidden=True)] = False,
) -> None:
    """Learn a stream: predict every row, then learn it, and say how that goes.

    Ctrl-C ends the run with a checkpoint; the same command with --resume goes on. --continue takes new rows, and
    HISTORY --then LIVE learns files as fit does before it goes on with a stream.
    """
    if supervised:  # the end of its standard input ends it, from here on
        from streamboost.runs.workers import end_with_parent

        end_with_parent()
        quiet = as_json = True
    from streamboost.cli import run_steps as steps
    from streamboost.cli.partition_command import Teller, run_partitions
    from streamboost.cli.rows import open_rows
    from streamboost.cli.saved_models import load_model
    from streamboost.dashboard.export import write_page
    from streamboost.evaluation.adapters import known_kinds
    from streamboost.evaluation.scorebook import choose_metrics
    from streamboost.kernels.progress import clock
    from streamboost.persistence import lease
    from streamboost.runs.run import Options, Run

    if workers is not None or ray is not None:
        with usage_errors():
            return run_partitions(context)
    console = terminal(stderr=True, quiet=quiet)
    with usage_errors():
        interval, limit = steps.parse_interval(checkpoint_every), steps.parse_max_bad(max_bad)
        steps.check_report(report)
        if then:
            steps.check_then(source, context.obj, {"--continue": go_on, "--start-from": start_from, "--key": key})
        before = steps.read_before(model, "--continue" if go_on else "--resume") if resume or go_on else None
        target = steps.same_target(before, target, model, goes_on=resume or go_on)
        if before is not None:
            steps.check_same_scores(before, metric, window)
            predictions = steps.same_predictions(before, predictions, console)
        key = steps.same_key(before, key)
        start = None if start_from is None or before is not None else load_model(start_from, must_learn=key is None)
        kinds = known_kinds(start, target) if before is None else steps.same_kinds(before)
        of_history, of_live = steps.split_options(context.params, then or source)
        live, follow = then or source, follow or follow_rotation
        waits = follow, follow_rotation
        opened = open_rows(live, of_live, waits, kinds=kinds, strict=strict, end_after=max_rows)
        history = steps.open_history(source, of_history, strict, before, console) if then else None
        if follow and history is None:
            console.print("Waiting for rows; Ctrl-C ends.")
        if history is not None:
            first, is_new_source = steps.first_of_history(history, source), False
        else:
            first, is_new_source = steps.first_rows(opened, before, target, go_on, context.obj)
        ignored = list(dict.fromkeys(ignore or ())) if before is None else steps.same_ignored(before, ignore, console)
        steps.check_columns(first, target, key, ignored, is_new=before is None)
        if history is not None:
            steps.check_live(open_rows(live, of_live, waits, strict=False), target)
        chosen = steps.choose_task(task, before, start, first, target, console)
        parameters = steps.parse_options(chosen, option or [])
        if before is not None:
            seeded = {} if seed is None or start_from is not None else {"random_state": seed}
            steps.check_resumed(before, parameters | seeded)
        else:
            if metric is not None:  # refuse those that are unknown, or not for this task and model
                like = start or steps.ESTIMATORS[chosen](**parameters)
                asked = choose_metrics(like, chosen, metric, hasattr(like, "predict_proba"))
                steps.check_applicable(asked, first, target)
            steps.check_parameters(chosen, parameters, first, target, [*ignored, key])
        usual = {"new_columns": "grow", "random_state": seed or 0}
        if before is not None:
            learner = None
        elif key is not None:
            learner = steps.make_keyed(key, chosen, start, usual | parameters)
        elif start is not None and parameters:
            told = "but a saved model keeps its parameters. Drop one."
            raise UsageError(f"--option and --start-from are both given, {told}")
        else:
            learner = start or steps.ESTIMATORS[chosen](**usual | parameters)
        scores: dict[str, Any] = {"every": every, "window": window or WINDOW, "metrics": metric}
        rows: dict[str, Any] = {"strict": strict, "max_bad": limit, "ignore": ignored, "kinds": opened.kinds}
        options = Options(target, chosen, predictions=predictions, **scores, **interval, **rows)
        goes_on = {"resume": resume or go_on, "new_source": is_new_source}
        wait = 3 * lease.SECONDS if supervised else 0.0  # for one before it to leave
        one = Run(opened, learner, options, model, **goes_on, history=history, wait=wait)
    with one:
        if first is not None:
            print_columns(console, first, target, chosen, ignored, (history or opened).describe())
        if one.rows:
            console.print(f"Resumed after {one.rows:,} rows{', with new ones' if is_new_source else ''}.")
        for sentence in one.store.damaged if one.store else ():
            console.print(f"Passed over: {sentence}", style="yellow")
        with usage_errors():
            title = " ".join([*source, *(["then", *then] if then else [])])
            board = Dashboard(one, title=title, target=target, port=dashboard_port if dashboard else None)
        with board, Screen(console, one) as screen, clock.heard_by(screen.hear):
            watchers = [board.see, screen.see, *([Teller(one).see] if supervised else [])]
            summary = steps.execute(one, watchers)
            if report is not None:
                write_page(board.feed, report)
        for name, path in (("predictions", predictions), ("report", report), ("model", model)):
            summary[name] = path and str(path)
        if not as_json:
            print_summary(terminal(), summary)
        elif not one.checkpoint_error:  # of which the error is the one object
            typer.echo(json.dumps(summary, default=str))
    if one.checkpoint_error:
        raise OSError(one.checkpoint_error)
    if "error" in summary:
        print_error(summary["error"])
        raise typer.Exit(summary["code"])
