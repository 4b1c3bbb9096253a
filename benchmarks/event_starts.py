"""Where generators of the Lorentz group begin and end: with a small transformer on a CPU.

The experiments on scattering events let generators begin where a plain network changes least, which
holds what leads from events to events before a label was seen. Here the same trainings are made
with and without that start, in the laboratory and in random frames, so that the two can be told
apart. Prints a table and writes benchmarks/results/event_starts.json (or --out).
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from lieaugmenter.data.amplitudes import amplitudes
from lieaugmenter.experiments.amplitudes import FRAMES
from lieaugmenter.experiments.catalogue import EXPERIMENTS
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Method
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "event_starts.json"
METHODS = (Method("lieaugmenter"), Method("lieaugmenter", "constant"))
# Boosts of the events in each experiment: none in the laboratory.
FRAMES_OF = {"amplitudes": None, "amplitudes-boosted": FRAMES}
# Events, channels and blocks, epochs.
SIZES, HIDDEN, EPOCHS = (20_000, 2_000, 5_000), (32, 3), 20
_KEPT = (
    "method", "seed", "train-seconds", "mse", "mse-direct", "inference", "principal-cosines",
    "fifth-cosine", "beam-cosine", "covered-cosine",
    "start-fifth-cosine", "start-span-cosine", "start-beam-cosine", "start-covered-cosine",
)  # fmt: skip


def run(job: tuple[str, Method, int, int]) -> dict[str, Any]:
    """Train one seed; what is kept of it."""
    name, method, seed, epochs = job
    torch.set_num_threads(1)
    experiment = replace(
        EXPERIMENTS[name],
        hidden=HIDDEN,
        epochs=epochs,
        curve=0,
        own_further=False,
        # Without the start nothing else needs the plain network.
        fallback=method.variant != "constant",
    )
    task = amplitudes(*SIZES, boost=FRAMES_OF[name])
    settings = Settings(seeds=(seed,), device="cpu", progress=False)
    with tempfile.TemporaryDirectory() as folder:
        (found,) = run_method(experiment, method, task, Path(folder), settings)
    return {"experiment": name, **{key: found[key] for key in _KEPT if key in found}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(FRAMES_OF))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    jobs = [(*job, arguments.epochs) for job in itertools.product(arguments.names, METHODS, seeds)]
    results = []
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        for found in pool.map(run, jobs):
            results.append(found)
            print(json.dumps(found), flush=True)
    settings = {"events": SIZES, "hidden": HIDDEN, "epochs": arguments.epochs}
    write_json(
        arguments.out,
        {"settings": settings, "environment": environment(), "results": results},
    )


if __name__ == "__main__":
    main()
