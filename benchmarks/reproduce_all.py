"""Experiments of the paper, several methods and seeds at a time; results go to results/*.json.

The runs are those of `lieaugmenter reproduce`, and finished ones are not repeated. At a limit
trainings of one seed stop with a checkpoint, and the same command goes on; stacks of seeds have
none and begin again. On a GPU many small networks share the device well (start the CUDA MPS daemon
first); large ones only take turns. Results in a file that are not among the runs are kept; if the
file is of other settings than the experiment's, as far as it tells, nothing is run. Exits with 1 if
something failed, with 4 if something is left to be done.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import torch

from lieaugmenter.data.task import Task
from lieaugmenter.experiments.catalogue import EXPERIMENTS
from lieaugmenter.experiments.results import check_addable, write_results
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.learning.trainer import TimeIsUp
from lieaugmenter.runs import RunError

# Relative costs, so that the longest runs start first.
_COST = {"liegan": 4.0, "augerino": 3.0, "emlp": 2.0, "trivial": 0.3, "trivial-paper": 0.3}
# The paper has one reading of this task; the other is run for the methods that say most about it.
_FEW = ("trivial", "trivial-paper", "oracle", "lieaugmenter", "lieaugmenter-paper")
# Seeds that are trained by themselves have folders of their own until they are finished, because a
# method's folder belongs to one process at a time.
_APART = "seeds"
# Marks a run as finished, see `run_method`.
_DONE = "result.json"
# Where a training that is not finished keeps its epochs.
_EPOCHS = "training/metrics.jsonl"
# How jobs end that are not finished.
_FAILED, _NOT_BEGUN, _STOPPED = "failed", "not begun", "stopped at the limit"
# Measuring what is trained comes on top of the limit.
_GRACE = 30.0


@dataclass(frozen=True)
class Job:
    """Some seeds of a method."""

    experiment: str
    method: str
    seeds: tuple[int, ...]
    apart: bool

    def folder(self, out: Path) -> Path:
        """Where the experiment's runs go until they are finished."""
        return (
            out / _APART / str(self.seeds[0]) / self.experiment
            if self.apart
            else out / self.experiment
        )

    def kept(self, out: Path, seed: int) -> Path:
        """Where a finished run lies."""
        return out / self.experiment / self.method / f"seed-{seed}"

    def __str__(self) -> str:
        return f"{self.experiment} {self.method}, seeds {', '.join(map(str, self.seeds))}"


def jobs(names: list[str], methods: list[str] | None, seeds: int | None) -> list[Job]:
    """The longest first; a stack of seeds is one job, seeds by themselves are one each.

    As many seeds as are asked for, else as the experiment has.
    """
    known = {method.name for name in names for method in EXPERIMENTS[name].methods}
    unknown = sorted(set(methods or ()) - known)
    if unknown:
        raise SystemExit(f"no method {', '.join(unknown)}; choose from {', '.join(sorted(known))}")
    found: list[tuple[float, Job]] = []
    for experiment, method in _chosen(names, methods):
        stacked = experiment.stacked and not experiment.prune
        each = range(seeds or experiment.n_seeds)
        groups = [tuple(each)] if stacked else [(seed,) for seed in each]
        cost = experiment.epochs * _COST.get(method.kind, 1.0)
        found += [(cost, Job(experiment.name, method.name, g, not stacked)) for g in groups]
    return [job for _, job in sorted(found, key=lambda pair: -pair[0])]


def _chosen(names: list[str], methods: list[str] | None) -> Iterator[tuple[Experiment, Method]]:
    for name in names:
        experiment = EXPERIMENTS[name]
        for method in experiment.methods:
            asked = method.name in methods if methods else True
            if asked and (name != "no-symmetry-deviation" or method.kind in _FEW):
                yield experiment, method


@functools.cache
def _task(name: str, source: Path | None, quick: bool) -> Task:
    return EXPERIMENTS[name].task(source, quick)


def _source(name: str, arguments: argparse.Namespace) -> Path | None:
    return arguments.data if name.startswith("two-body") else None


def _asked(experiment: Experiment, arguments: argparse.Namespace) -> Experiment:
    if not arguments.epochs:
        return experiment
    epochs = arguments.epochs
    return replace(experiment, epochs=epochs, quick_epochs=epochs, epochs_of={})


def run(job: Job, arguments: argparse.Namespace, end: float) -> str:
    """Train and measure; how it ended, for people."""
    warnings.simplefilter("ignore")
    # A step that is not what was measured takes several times as long.
    warnings.filterwarnings("default", message=".*(cannot be captured|out of memory)")
    torch.set_num_threads(1)
    experiment = _asked(EXPERIMENTS[job.experiment], arguments)
    source = _source(job.experiment, arguments)
    left, started = end - time.time(), time.monotonic()
    if all((job.kept(arguments.out, seed) / _DONE).exists() for seed in job.seeds):
        return "was finished"
    if left <= 0:
        return _NOT_BEGUN
    settings = Settings(
        seeds=job.seeds,
        source=source,
        quick=arguments.quick,
        device=arguments.device,
        progress=False,
        deadline=started + left,
        workers=arguments.workers,
    )
    task = _task(job.experiment, source, arguments.quick)
    try:
        run_method(
            experiment, experiment.method(job.method), task, job.folder(arguments.out), settings
        )
    except TimeIsUp:
        return _STOPPED
    return f"{time.monotonic() - started:.0f} s"


def _outcome(future: Future[str]) -> str:
    """How a job ended; a failure is told, and does not stop the others."""
    error = future.exception()
    if error is None:
        return future.result()
    return f"{_FAILED}\n{''.join(traceback.format_exception(error))}"


def _exit_code(outcomes: list[str], of: int) -> int:
    """For scripts: whether anything failed, or is not finished."""
    if any(outcome.startswith(_FAILED) for outcome in outcomes):
        return 1
    unfinished = {_NOT_BEGUN, _STOPPED} & set(outcomes)
    return 4 if unfinished or len(outcomes) < of else 0


def _gather(out: Path) -> None:
    """Put the finished runs of seeds that were apart beside the others, and of others how far."""
    for path in sorted((out / _APART).glob(f"*/*/*/seed-*/{_DONE}")):
        target = out.joinpath(*path.parent.parts[-3:])
        if not (target / _DONE).exists():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(path.parent, target, ignore=lambda *_: [_DONE])
            shutil.copy(path, target)
    for path in sorted((out / _APART).glob(f"*/*/*/seed-*/{_EPOCHS}")):
        target = out.joinpath(*path.parts[-5:])
        if not (target.parents[1] / _DONE).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(EXPERIMENTS))
    parser.add_argument("--methods", nargs="+", help="only these; all of them unless given")
    parser.add_argument("--seeds", type=int, help="as many as the experiment has unless given")
    parser.add_argument("--epochs", type=int, help="length of every training")
    parser.add_argument("--data", type=Path, help="the two-body reference file")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=86_400.0, help="seconds of training")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    end = time.time() + arguments.limit
    todo = jobs(arguments.names, arguments.methods, arguments.seeds)
    asked = {name: _asked(EXPERIMENTS[name], arguments) for name in arguments.names}
    files = {name: arguments.results / f"{name}.json" for name in arguments.names}
    for name, experiment in asked.items():
        source = _source(name, arguments)
        kept_as = source.name if source else experiment.data
        try:
            check_addable(experiment, files[name], quick=arguments.quick, source=kept_as)
        except RunError as error:
            raise SystemExit(str(error)) from None
    pool = ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn"))
    futures = {pool.submit(run, job, arguments, end): job for job in todo}
    outcomes: list[str] = []
    try:
        for future in as_completed(futures, arguments.limit + _GRACE):
            outcomes.append(_outcome(future))
            print(f"{len(outcomes)}/{len(todo)} {futures[future]}: {outcomes[-1]}", flush=True)
    except TimeoutError:
        print("some did not end in time and are left; the same command continues", flush=True)
    # Before the results are read: nothing is to be finished behind them.
    for process in list((pool._processes or {}).values()):
        process.kill()
    _gather(arguments.out)
    for name, experiment in asked.items():
        try:
            write_results(experiment, arguments.out / name, files[name])
        except RunError as error:
            print(error)
    pool.shutdown(wait=False, cancel_futures=True)
    return _exit_code(outcomes, len(todo))


if __name__ == "__main__":
    sys.exit(main())
