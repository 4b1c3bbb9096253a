"""One step of a CNN on images: augmented, and plain on as many images; milliseconds and kernels.

On a GPU both steps are CUDA graphs in bfloat16, replayed in turns; the fastest round counts.
Prints tables and writes benchmarks/results/image_step.json (or --out). --quick tries it out on tiny
sizes, also on a CPU, and writes nothing unless --out is given.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from steps import TrainingStep, costliest, fastest, show, wait
from torch import Tensor

from lieaugmenter import LieAugmenter, Objective, fit
from lieaugmenter.learning.devices import lay_channels_last
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.nets import CNN
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "image_step.json"
OBJECTIVE = Objective(
    prediction=1.0, equivariance=7.0, similarity=0.1, sparsity=1e-2, alignment=0.0, proximity=0.0
)
CLASSES = 10


@dataclass(frozen=True)
class Sizes:
    """What is measured, and how often."""

    batch: int = 64
    views: int = 10
    side: int = 28
    rounds: int = 12
    replays: int = 300
    profiled: int = 20
    fitted_images: int = 54_000


QUICK = Sizes(batch=4, views=2, side=8, rounds=2, replays=2, profiled=1, fitted_images=16)


def random_images(n: int, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, side, side, generator=rng)
    return x.to(device), torch.randint(CLASSES, (n,), generator=rng).to(device)


def make_augmenter(views: int) -> LieAugmenter:
    return LieAugmenter(
        action="image", output="invariant", n_views=views, range=3.0, objective=OBJECTIVE
    )


def make_step(
    learner: LieAugmenter | Unaugmented, n_images: int, side: int, device: torch.device
) -> tuple[TrainingStep, float]:
    """A step on so many images before augmentation, and the seconds until it was ready."""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = CNN((1, side, side), CLASSES).to(device)
    if device.type == "cuda":
        lay_channels_last(model)
    step = TrainingStep(
        model, learner.to(device), *random_images(n_images, side, device), bf16=True
    )
    wait(device)
    return step, time.perf_counter() - start


def fit_seconds(sizes: Sizes, epochs: int, device: torch.device) -> float:
    """Of a whole training, start-up included."""
    torch.manual_seed(0)
    x, y = random_images(sizes.fitted_images, sizes.side, torch.device("cpu"))
    model, augmenter = CNN((1, sizes.side, sizes.side), CLASSES), make_augmenter(sizes.views)
    start = time.perf_counter()
    fit(
        model,
        augmenter,
        (x, y),
        epochs=epochs,
        batch_size=sizes.batch,
        precision="bf16",
        device=device,
        progress=False,
    )
    wait(device)
    return time.perf_counter() - start


def measure(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    together = sizes.batch * (sizes.views + 1)
    kinds: dict[str, tuple[LieAugmenter | Unaugmented, int]] = {
        "plain": (Unaugmented(), together),
        "augmented": (make_augmenter(sizes.views), sizes.batch),
    }
    made = {
        name: make_step(learner, n_images, sizes.side, device)
        for name, (learner, n_images) in kinds.items()
    }
    steps = {name: step for name, (step, _) in made.items()}
    ms = fastest(steps, rounds=sizes.rounds, replays=sizes.replays, device=device)
    ratio = ms["augmented"] / ms["plain"]
    for name, (_, seconds) in made.items():
        print(f"{name:9s} {ms[name]:8.4f} ms a step, ready after {seconds:.2f} s", flush=True)
    print(f"augmented / plain on {together} images: {ratio:.3f}", flush=True)
    listed = {name: costliest(step, sizes.profiled, device) for name, step in steps.items()}
    for name, rows in listed.items():
        show(f"{name} step", rows)
    return {
        "ms": ms,
        "ratio": ratio,
        # The first one also loads libraries.
        "start_up_s": {name: seconds for name, (_, seconds) in made.items()},
        "kernels": listed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try it out")
    parser.add_argument("--epochs", type=int, default=0, help="also time fit() for these epochs")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not arguments.quick:
        parser.error("there is no GPU to measure on; --quick only tries it out")
    sizes = QUICK if arguments.quick else Sizes()
    content = {"environment": environment(), "sizes": asdict(sizes), **measure(sizes, device)}
    if arguments.epochs:
        seconds = fit_seconds(sizes, arguments.epochs, device)
        content["fit"] = {"epochs": arguments.epochs, "seconds": seconds}
        print(f"\nfit, {arguments.epochs} epochs of {sizes.fitted_images} images: {seconds:.2f} s")
    out = arguments.out or (None if arguments.quick else RESULTS)
    if out is not None:
        write_json(out, content)


if __name__ == "__main__":
    main()
