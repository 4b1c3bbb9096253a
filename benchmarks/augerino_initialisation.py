"""How much Augerino+ depends on the size of its initial entries, on the two-body task.

Takes the reference file, as the reproduction does. Prints and writes
benchmarks/results/augerino_initialisation.json (or --out).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import LieGANSettings, Method, find_experiment
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "augerino_initialisation.json"
SCALE = 1.0
KEPT = ("method", "seed", "mse", "mse-direct", "cosine", "cosine-on-data", "diverged")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--masks", nargs="+", default=["mask4", "mask0"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    experiment = replace(
        find_experiment("two-body"), liegan=lambda method: LieGANSettings(scale=SCALE)
    )
    settings = Settings(source=arguments.data, progress=False)
    task = experiment.task(arguments.data, False)
    found: list[dict[str, Any]] = []
    for mask in arguments.masks:
        with tempfile.TemporaryDirectory() as folder:
            results = run_method(experiment, Method("augerino", mask), task, Path(folder), settings)
        found += [{key: result[key] for key in KEPT if key in result} for result in results]
        print(*found[-len(results) :], sep="\n", flush=True)
    write_json(
        arguments.out,
        {"initial_deviation": SCALE, "environment": environment(), "results": found},
    )


if __name__ == "__main__":
    main()
