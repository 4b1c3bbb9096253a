"""On a GPU: one two-body run of 100 epochs, and three seeds trained as one stacked model.

Prints and writes benchmarks/results/stacked.json (or --out).
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import torch
from captured_step import two_body_net
from torch import nn

from lieaugmenter import LieAugmenter, fit
from lieaugmenter.analysis.compare import absolute_cosine
from lieaugmenter.data.dynamics import TwoBody, two_body
from lieaugmenter.learning.ensemble import fit_ensemble
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "stacked.json"
SEEDS = (0, 1, 2)
WARMUP = 0.15


def member(seed: int, steps: int) -> tuple[nn.Module, LieAugmenter]:
    torch.manual_seed(seed)
    augmenter = LieAugmenter(
        "vector", 8, blocks=[2] * 4, objective=PAPER_TWO_BODY, warmup_steps=int(WARMUP * steps)
    )
    return two_body_net(), augmenter


def single(task: TwoBody, epochs: int, seed: int) -> tuple[float, LieAugmenter]:
    model, augmenter = member(seed, epochs * 229)
    started = time.monotonic()
    fit(model, augmenter, (task.x_train, task.y_train), epochs=epochs, seed=seed, progress=False)
    torch.cuda.synchronize()
    return time.monotonic() - started, augmenter


def stacked(task: TwoBody, epochs: int) -> tuple[float, list[LieAugmenter]]:
    members = [member(seed, epochs * 229) for seed in SEEDS]
    started = time.monotonic()
    fit_ensemble(
        [model for model, _ in members],
        [augmenter for _, augmenter in members],
        (task.x_train, task.y_train),
        seeds=SEEDS,
        epochs=epochs,
        progress=False,
    )
    torch.cuda.synchronize()
    return time.monotonic() - started, [augmenter for _, augmenter in members]


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    task = two_body(seed=0)
    # The first runs compile kernels and load libraries.
    single(task, 1, 0)
    stacked(task, 1)
    alone, together = [], []
    found: list[LieAugmenter] = []
    for _ in range(arguments.repeats):
        alone.append(single(task, arguments.epochs, 0)[0])
        seconds, found = stacked(task, arguments.epochs)
        together.append(seconds)
    cosines = [float(absolute_cosine(a.generators[0].cpu(), task.generator[0])) for a in found]
    content = {
        "settings": {"epochs": arguments.epochs, "seeds": list(SEEDS), "views": 10, "batch": 64},
        "environment": environment(),
        "one_run_seconds": alone,
        "three_stacked_seconds": together,
        "ratio": min(together) / min(alone),
        "cosines_of_the_stack": cosines,
    }
    write_json(arguments.out, content)
    print(
        f"one run {min(alone):.2f} s, three stacked {min(together):.2f} s", alone, together, cosines
    )


if __name__ == "__main__":
    main()
