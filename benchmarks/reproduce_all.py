"""All experiments on vectors, several methods at a time; results go to results/*.json.

The runs are those of `lieaugmenter reproduce`, and finished ones are not repeated. On a GPU the
networks are so small that a dozen processes share it well (start the CUDA MPS daemon first).
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch

from lieaugmenter.experiments.catalogue import EXPERIMENTS
from lieaugmenter.experiments.results import write_results
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.runs import RunError

# Relative costs, so that the longest runs start first.
_COST = {"liegan": 4.0, "augerino": 3.0, "emlp": 2.0, "trivial": 0.3, "trivial-paper": 0.3}
# The paper has one reading of this task; the other is run for the methods that say most about it.
_FEW = ("trivial", "trivial-paper", "oracle", "lieaugmenter", "lieaugmenter-paper")


def jobs(names: list[str]) -> list[tuple[str, str]]:
    """Experiments and methods, the longest first."""
    found = [
        (EXPERIMENTS[name].epochs * _COST.get(method.kind, 1.0), name, method.name)
        for name in names
        for method in EXPERIMENTS[name].methods
        if name != "no-symmetry-deviation" or method.kind in _FEW
    ]
    return [(name, method) for _, name, method in sorted(found, reverse=True)]


def run(name: str, method: str, arguments: argparse.Namespace) -> tuple[str, float]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    experiment = EXPERIMENTS[name]
    source = arguments.data if name.startswith("two-body") else None
    settings = Settings(
        seeds=range(arguments.seeds),
        source=source,
        quick=arguments.quick,
        device=arguments.device,
        progress=False,
    )
    started = time.monotonic()
    task = experiment.task(source, arguments.quick)
    run_method(experiment, experiment.method(method), task, arguments.out / name, settings)
    return f"{name} {method}", time.monotonic() - started


def _outcome(future: Future[tuple[str, float]]) -> str:
    """What was run and for how long; a failure is told, and does not stop the others."""
    error = future.exception()
    if error is not None:
        return f"failed: {error}"
    what, seconds = future.result()
    return f"{what}, {seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(EXPERIMENTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="the two-body reference file")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, help="seconds after which no result is waited for")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    pool = ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn"))
    futures = [pool.submit(run, *job, arguments) for job in jobs(arguments.names)]
    try:
        for number, future in enumerate(as_completed(futures, arguments.limit), 1):
            print(f"{number}/{len(futures)} {_outcome(future)}", flush=True)
    except TimeoutError:
        print("stopped at the limit; the same command continues", flush=True)
    for name in arguments.names:
        try:
            folder, path = arguments.out / name, arguments.results / f"{name}.json"
            write_results(EXPERIMENTS[name], folder, path, arguments.workers)
        except RunError as error:
            print(error)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list((pool._processes or {}).values()):
        process.kill()


if __name__ == "__main__":
    main()
