"""How much some rows of the reproduction depend on what the paper does not say.

Two studies on the reference file: Augerino+ with larger initial entries, and the paper's settings
with a narrower network. Prints and writes benchmarks/results/sensitivity_*.json.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Experiment, LieGANSettings, find_experiment
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results"
SCALE = 1.0
WIDTHS = (32, 32, 32)
KEPT = (
    "experiment", "method", "seed", "mse", "mse-direct", "cosine", "cosine-on-data", "diverged"
)  # fmt: skip


def measure(experiment: Experiment, methods: Sequence[str], data: Path) -> list[dict[str, Any]]:
    settings = Settings(source=data, progress=False)
    task = experiment.task(data, False)
    found: list[dict[str, Any]] = []
    for name in methods:
        with tempfile.TemporaryDirectory() as folder:
            results = run_method(experiment, experiment.method(name), task, Path(folder), settings)
        found += [{key: result[key] for key in KEPT if key in result} for result in results]
        print(*found[-len(results) :], sep="\n", flush=True)
    return found


def augerino(data: Path) -> dict[str, Any]:
    """Augerino+ from entries of standard deviation 1 where LieGAN's code has smaller ones."""
    experiment = replace(
        find_experiment("two-body"), liegan=lambda method: LieGANSettings(scale=SCALE)
    )
    results = measure(experiment, ["augerino-mask4", "augerino-mask0"], data)
    return {"initial_deviation": SCALE, "results": results}


def width(data: Path) -> dict[str, Any]:
    """A network of 3 × 32, the width of LieGAN's notebook, in place of 3 × 128."""
    methods = {
        "two-body": ["trivial-paper", "oracle-paper", "lieaugmenter-paper-mask4"],
        "two-body-ood": ["trivial-paper", "oracle-paper"],
    }
    results = []
    for name, chosen in methods.items():
        results += measure(replace(find_experiment(name), hidden=WIDTHS), chosen, data)
    return {"hidden": list(WIDTHS), "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the two-body reference file")
    parser.add_argument("--only", choices=["augerino", "width"])
    arguments = parser.parse_args()
    for name, study in (("augerino", augerino), ("width", width)):
        if arguments.only in (None, name):
            content = {"environment": environment(), **study(arguments.data)}
            write_json(RESULTS / f"sensitivity_{name}.json", content)


if __name__ == "__main__":
    main()
