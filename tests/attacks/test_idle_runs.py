"""A run that waits for rows keeps what it has learned: checkpoints come by the clock, not only after rows."""

import threading
import time

from live_models import SMALL, rows_of

from streamboost import SGBRegressor
from streamboost.persistence.checkpoints import read_latest
from streamboost.runs.run import Options, Run
from streamboost.sources import open_source


def saved(directory):
    try:
        return read_latest(directory).rows
    except FileNotFoundError:
        return 0


def test_a_run_that_follows_an_idle_file_saves_what_it_has_learned(tmp_path):
    path, directory = tmp_path / "rows.csv", tmp_path / "run"
    path.write_text(rows_of(300).to_pandas().to_csv(index=False))
    source = open_source(path, follow=True)
    options = Options("target", "regression", chunk=100, checkpoint_seconds=0.6)
    with Run(source, SGBRegressor(**SMALL), options, directory) as run:
        thread = threading.Thread(target=lambda: list(run.reports()))
        thread.start()
        try:
            deadline = time.monotonic() + 300
            while saved(directory) < 300:  # nothing comes after these
                assert time.monotonic() < deadline
                time.sleep(0.1)
            n_saved = len(list(directory.glob("checkpoint-*")))
            time.sleep(1.5)
            assert len(list(directory.glob("checkpoint-*"))) == n_saved
        finally:
            run.stop()
            thread.join(300)
    assert not thread.is_alive()
