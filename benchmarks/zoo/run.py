"""Run methods on the tasks of the zoo, one JSON file for each run; finished ones are skipped.

    python -m benchmarks.zoo.run --methods liegg-gap liegg-known --seeds 5

Interrupt it at any time and start it again. A run that failed is recorded with its error, and
tried again the next time. The tables are written beside the runs.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.zoo.methods import METHODS
from benchmarks.zoo.score import markdown, span_cosine, table
from benchmarks.zoo.tasks import tasks
from lieaugmenter.runs import environment, read_json, write_atomically, write_json

FOLDER = Path("runs") / "zoo"


@dataclass(frozen=True)
class Plan:
    """One run to make."""

    task: str
    method: str
    n: int
    noise: float
    seed: int

    def path(self, folder: Path) -> Path:
        """Where its record belongs."""
        name = f"{self.task}--{self.method}--n{self.n}--noise{self.noise:g}--seed{self.seed}.json"
        return folder / name

    def finished(self, folder: Path) -> bool:
        """Whether it was made, without an error."""
        path = self.path(folder)
        return path.exists() and "error" not in read_json(path)


def execute(plan: Plan) -> dict[str, Any]:
    """Make a run: its record, with the error if it failed."""
    task, method = tasks()[plan.task], METHODS[plan.method]
    record = asdict(plan) | {
        "family": task.family,
        "kind": task.kind,
        "true_dimension": task.dimension,
        "algebra": task.algebra,
        "certifies": method.certifies,
        "told": method.told,
    }
    x, y = task.draw(plan.n, plan.noise, plan.seed)
    start = time.perf_counter()
    try:
        found = method.run(task, x, y, plan.seed)
    except Exception as error:  # one bad run must not end the others; it is counted as failed
        failure = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        return record | failure | {"seconds": time.perf_counter() - start}
    generators = torch.tensor(found["generators"], dtype=torch.float64)
    return record | found | {"cosine": span_cosine(generators, task.truth)}


def execute_and_write(plan: Plan, folder: Path) -> dict[str, Any]:
    """Make a run and write its record, atomically."""
    torch.set_num_threads(1)
    record = execute(plan) | {"environment": environment()}
    write_json(plan.path(folder), record)
    return record


def records(plans: Sequence[Plan], folder: Path) -> list[dict[str, Any]]:
    """The records that there are."""
    return [read_json(p.path(folder)) for p in plans if p.path(folder).exists()]


def run_all(plans: Sequence[Plan], folder: Path, workers: int, limit: float) -> None:
    """Make the runs that are not finished; none is begun after `limit` seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    left = [plan for plan in plans if not plan.finished(folder)]
    deadline = time.monotonic() + limit
    print(f"{len(plans) - len(left)} runs are finished, {len(left)} are left", flush=True)
    done = (
        _in_turn(left, folder, deadline)
        if workers == 1
        else _at_once(left, folder, workers, deadline)
    )
    for number, record in enumerate(done, 1):
        what = (
            record.get("error") or f"dimension {record['dimension']}, {record['name'] or 'no name'}"
        )
        print(
            f"{number}/{len(left)} {record['task']} {record['method']}: {what} "
            f"({record['seconds']:.1f} s)",
            flush=True,
        )


def _in_turn(plans: Sequence[Plan], folder: Path, deadline: float) -> Iterator[dict[str, Any]]:
    for plan in plans:
        if time.monotonic() > deadline:
            return
        yield execute_and_write(plan, folder)


def _at_once(
    plans: Sequence[Plan], folder: Path, workers: int, deadline: float
) -> Iterator[dict[str, Any]]:
    """The same in several processes, each given a new run when it has finished one."""
    waiting = iter(plans)
    # Not forked: torch's threads do not survive it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:

        def submit(count: int) -> set[Any]:
            if time.monotonic() > deadline:
                return set()
            chosen = itertools.islice(waiting, count)
            return {pool.submit(execute_and_write, plan, folder) for plan in chosen}

        running = submit(workers)
        while running:
            first = next(as_completed(running))
            running = (running - {first}) | submit(1)
            yield first.result()


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(tasks()), metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--actions", nargs="+", help="only tasks of these actions")
    parser.add_argument("--sizes", nargs="+", type=int, default=[4000])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.01])
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds to begin runs in"
    )
    parser.add_argument("--output", type=Path, default=FOLDER)
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.tasks) - set(tasks()))
    if unknown:
        parser.error(f"unknown tasks: {', '.join(unknown)}")
    return chosen


def plans_of(chosen: argparse.Namespace) -> list[Plan]:
    """Every combination that was asked for, seed by seed, so that a part is a whole zoo."""
    names = [t for t in chosen.tasks if not chosen.actions or tasks()[t].action in chosen.actions]
    return [
        Plan(task, method, n, noise, seed)
        for seed in range(chosen.seeds)
        for n in chosen.sizes
        for noise in chosen.noise
        for method in chosen.methods
        for task in names
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parsed(arguments)
    plans = plans_of(chosen)
    run_all(plans, chosen.output, chosen.workers, chosen.limit)
    rows = table(records(plans, chosen.output))
    # In a folder of their own: every JSON file beside is a run.
    tables = chosen.output / "tables"
    write_json(tables / "table.json", rows)
    write_atomically(tables / "table.md", markdown(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
