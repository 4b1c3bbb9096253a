"""How much some rows of the reproduction depend on what the paper does not say.

Studies of five silences: the width of the network, the number of epochs, the entries from which
Augerino+ and LieGAN start, the weight of Augerino+'s cosine, and the draw of a random target.
Prints, and writes results/sensitivity/*.json.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from lieaugmenter.data.synthetic import no_symmetry
from lieaugmenter.experiments.catalogue import find_experiment
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Experiment
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent.parent / "results" / "sensitivity"
KEPT = (
    "experiment", "method", "seed", "mse", "mse-direct", "cosine", "cosine-on-data",
    "displacement", "diverged",
)  # fmt: skip

# What is varied: the experiments with their rows, and the values that are tried.
WIDTHS = (16, 32)
WIDTH_ROWS = {
    "two-body": ["trivial-paper", "oracle-paper", "lieaugmenter-paper-mask4", "liegan-mask0"],
    "two-body-ood": ["trivial-paper", "oracle-paper", "liegan-mask4"],
    "two-body-3": ["liegan-mask0", "liegan-mask2"],
    "two-body-3-ood": ["liegan-mask2"],
    "discrete-rotation": ["trivial-paper", "lieaugmenter-paper-discrete"],
    "partial-permutation": ["liegan", "lieaugmenter-paper-discrete"],
    "no-symmetry": ["trivial-paper", "oracle-paper", "augerino"],
}
EPOCHS = (10, 25, 100)
EPOCHS_ROWS = {
    "discrete-rotation": ["trivial-paper", "lieaugmenter-paper-discrete"],
    "partial-permutation": ["lieaugmenter-paper-discrete"],
}
STARTS = (0.01, 0.1, 1.0)
START_ROWS = {
    "two-body": ["augerino-mask4", "augerino-mask0"],
    "no-symmetry": ["augerino"],
    "partial-permutation": ["liegan"],
}
SIMILARITIES = (0.001, 0.01, 0.1)
SIMILARITY_ROWS = {"no-symmetry": ["augerino"]}
DRAWS = (1, 2, 3)
DRAW_ROWS = {"no-symmetry": ["trivial-paper", "oracle-paper", "augerino"]}


@dataclass(frozen=True)
class Job:
    """One row with one thing changed."""

    study: str
    value: float
    experiment: str
    method: str

    def changed(self) -> Experiment:
        """The experiment with the study's value in place of the project's."""
        experiment = find_experiment(self.experiment)
        if self.study == "width":
            return replace(experiment, hidden=(int(self.value),) * 3)
        if self.study == "epochs":
            return replace(experiment, epochs=int(self.value))
        if self.study == "draw":
            return replace(experiment, task=lambda _, quick: no_symmetry(seed=int(self.value)))
        published = experiment.liegan
        if self.study == "similarity":
            return replace(
                experiment, liegan=lambda m: replace(published(m), augerino_similarity=self.value)
            )
        return replace(experiment, liegan=lambda m: replace(published(m), scale=self.value))


STUDIES: Mapping[str, list[Job]] = {
    study: [
        Job(study, float(value), experiment, method)
        for experiment, methods in rows.items()
        for method in methods
        for value in values
    ]
    for study, rows, values in (
        ("width", WIDTH_ROWS, WIDTHS),
        ("epochs", EPOCHS_ROWS, EPOCHS),
        ("start", START_ROWS, STARTS),
        ("similarity", SIMILARITY_ROWS, SIMILARITIES),
        ("draw", DRAW_ROWS, DRAWS),
    )
}


def measure(job: Job, data: Path, device: str) -> list[dict[str, Any]]:
    """Run one row for all seeds and keep what the study is about."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    source = data if job.experiment.startswith("two-body") else None
    settings = Settings(source=source, device=device, progress=False)
    experiment = job.changed()
    task = experiment.task(source, False)
    with tempfile.TemporaryDirectory() as folder:
        results = run_method(
            experiment, experiment.method(job.method), task, Path(folder), settings
        )
    return [
        {job.study: job.value, **{key: result[key] for key in KEPT if key in result}}
        for result in results
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the two-body reference file")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    jobs = [job for name in arguments.only for job in STUDIES[name]]
    # LieGAN is not stacked and takes longest: it goes first.
    jobs.sort(key=lambda job: not job.method.startswith("liegan"))
    found: dict[Job, list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(measure, job, arguments.data, arguments.device): job for job in jobs}
        for future in as_completed(futures):
            job = futures[future]
            found[job] = future.result()
            print(job.study, f"{job.value:g}", job.experiment, job.method, end=" ")
            print(*(f"{result.get('mse', float('nan')):.3g}" for result in found[job]), flush=True)
    for name in arguments.only:
        results = [result for job in STUDIES[name] for result in found[job]]
        content = {"environment": environment(), "workers": arguments.workers, "results": results}
        write_json(arguments.results / f"{name}.json", content)


if __name__ == "__main__":
    main()
