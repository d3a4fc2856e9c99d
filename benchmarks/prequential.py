"""One run: a learner goes through a stream, each row answered, then learned, while its cost is measured.

    python -m benchmarks.prequential '{"stream": "friedman", "model": "river_ht", "rows": 10000, "seed": 1}'

One process a run, so that memory and CPU time are the learner's own. On standard output come JSON lines: how many rows
are done, and in the end the record of the run. ``benchmarks.run`` starts these.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks import peers, scores, streams


@dataclass(frozen=True)
class Job:
    """What to run.

    Parameters
    ----------
    stream, model : str
    rows, seed : int
    settings : dict, optional
        Arguments of streamboost's estimators; the model is then streamboost, whatever its name.
    time_limit : float
        Seconds after which the run stops where it is.
    cache : str
        The folder of the generated streams.
    """

    stream: str
    model: str
    rows: int
    seed: int
    settings: dict[str, Any] | None = None
    time_limit: float = math.inf
    cache: str = field(default=str(streams.CACHE))

    @property
    def peer(self) -> peers.Peer:
        """The learner this is about."""
        return peers.PEERS[self.model] if self.settings is None else peers.streamboost(self.settings, self.model)

    def key(self, digest: str) -> tuple[Any, ...]:
        """What makes two runs the same: rows, learner, and for streamboost its settings and its source."""
        own = (source_digest(), json.dumps(self.settings, sort_keys=True)) if self.peer.package == "streamboost" else ()
        return (self.stream, self.model, self.rows, self.seed, digest, *own)


def source_digest() -> str:
    """Give a fingerprint of the package's source: another source, another learner."""
    import streamboost

    folder = Path(streamboost.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def run(job: Job, tell: Callable[[int], None] = lambda rows: None) -> dict[str, Any]:
    """Run a job and give its record."""
    stream = streams.load(job.stream, job.rows, job.seed, Path(job.cache))
    learner = job.peer.make(stream, job.seed)
    n = len(stream.y)
    answers = np.zeros((n, stream.n_classes) if stream.n_classes else n)
    stopped = None
    gc.collect()
    before, memory, start, done = cpu_seconds(), resident_mb(), time.perf_counter(), 0
    while done < n and stopped is None:
        rows = slice(done, min(done + learner.chunk, n))
        try:
            answers[rows] = learner.learn(stream.X[rows], stream.y[rows])
        except Exception as error:  # what it said until then still counts, and why it ended is part of the picture
            stopped = f"{type(error).__name__}: {error}"[:200]
            break
        done = rows.stop
        tell(done)
        if done < n and time.perf_counter() - start > job.time_limit:
            stopped = "time limit"
    cost = {"cpu": cpu_seconds() - before, "wall": time.perf_counter() - start, "rss": resident_mb() - memory}
    return record(job, stream, answers[:done], stopped, cost)


def record(
    job: Job, stream: streams.Stream, answers: np.ndarray[Any, Any], stopped: str | None, cost: dict[str, float]
) -> dict[str, Any]:
    """Put scores, cost and circumstances together."""
    done = len(answers)
    answers, n_bad = scores.tidy(answers)
    blocks = scores.block_scores(stream.task, stream.y[:done], answers)
    if not job.peer.has_probabilities:
        blocks.pop("log_loss", None)
    whole = {name: scores.cumulative(name, values, done)[-1] for name, values in blocks.items() if values}
    if "log_loss" in whole:
        whole["calibration"] = scores.calibration_error(answers, stream.y[:done])
    package = job.peer.package
    own = {"source": source_digest(), "settings": job.settings} if package == "streamboost" else {}
    return rounded(
        {
            "stream": job.stream,
            "model": job.model,
            "task": stream.task,
            "rows": job.rows,
            "seed": job.seed,
            "digest": stream.digest,
            "n": len(stream.y),
            "done": done,
            "stopped": stopped,
            "no_answer": n_bad,
            "score": whole,
            "blocks": blocks,
            "cpu_s": cost["cpu"],
            "wall_s": cost["wall"],
            "rss_growth_mb": cost["rss"],
            "package": package,
            "version": version(package),
            **own,
            "python": platform.python_version(),
            "cpu": cpu_model(),
        }
    )


def rounded(value: Any) -> Any:
    """Keep five significant digits of every number."""
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def cpu_seconds() -> float:
    """User and system time of the whole process, all its threads (and so a virtual machine's too)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mb() -> float:
    """Memory held at present; the most ever held where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def cpu_model() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def own_output() -> TextIO:
    """Take standard output for the JSON lines alone: whatever a library prints goes to standard error."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return output


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    output = own_output()
    result = run(job, lambda rows: print(json.dumps({"done": rows}), file=output))
    print(json.dumps({"record": result}), file=output)


def as_json(job: Job) -> str:
    """Write a job as the command above takes it."""
    return json.dumps({name: value for name, value in asdict(job).items() if value != math.inf})


if __name__ == "__main__":
    main()
