"""One step of a CNN on images: augmented, and plain on as many images; milliseconds and kernels.

On a GPU both steps are CUDA graphs in bfloat16, replayed in turns; the fastest round counts.
Prints tables and writes benchmarks/results/image_step.json (or --out). --quick tries it out on tiny
sizes, also on a CPU, and writes nothing unless --out is given.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter import LieAugmenter, Objective, fit
from lieaugmenter.learning.captured import CapturedStep
from lieaugmenter.learning.optimizer import make_optimizer, optimizer_tensors, trainable
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.nets import CNN
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "image_step.json"
OBJECTIVE = Objective(
    prediction=1.0, equivariance=7.0, similarity=0.1, sparsity=1e-2, alignment=0.0, proximity=0.0
)
CLASSES = 10
# Kernels that are listed, and the characters of a name that are shown.
LISTED, NAME_LENGTH = 45, 90


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
) -> tuple[Callable[[], Any], float]:
    """A function that takes one step, and the seconds until it could take the first.

    Parameters
    ----------
    learner
        Its loss is trained.
    n_images
        In a batch, before augmentation.
    side
        Of an image, in pixels.
    """
    start = time.perf_counter()
    torch.manual_seed(0)
    model = CNN((1, side, side), CLASSES).to(device)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    learner.to(device).train()
    groups = [trainable(model), trainable(learner, **learner.optimizer_options)]
    optimizer = make_optimizer(groups, 1e-3, device)

    def forward(x: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            prediction = model(x)
        return prediction.float()

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = learner.loss(forward, x, y)
        loss.backward()
        optimizer.step()
        return loss.parts.values_tensor

    def state() -> list[Tensor]:
        modules: list[nn.Module] = [model, learner]
        held = [tensor for module in modules for tensor in module.state_dict().values()]
        return [*held, *optimizer_tensors(optimizer)]

    images, labels = random_images(n_images, side, device)
    if device.type != "cuda":
        step(images, labels)
        return lambda: step(images, labels), time.perf_counter() - start
    captured = CapturedStep(step, (images, labels), state)
    captured.replay(images, labels)
    torch.cuda.synchronize()
    return lambda: captured.graph.replay(), time.perf_counter() - start


def milliseconds(step: Callable[[], Any], repeats: int, device: torch.device) -> float:
    """Of one step, from as many in a row."""
    wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    wait(device)
    return (time.perf_counter() - start) / repeats * 1e3


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest(
    steps: dict[str, Callable[[], Any]], sizes: Sizes, device: torch.device
) -> dict[str, float]:
    """The fastest round of each; rounds are taken in turns, so that all see the same clock."""
    for step in steps.values():
        milliseconds(step, max(1, sizes.replays // 10), device)
    rounds = [
        {name: milliseconds(step, sizes.replays, device) for name, step in steps.items()}
        for _ in range(sizes.rounds)
    ]
    return {name: min(found[name] for found in rounds) for name in steps}


def costliest(
    step: Callable[[], Any], repeats: int, device: torch.device
) -> list[dict[str, float | str]]:
    """Kernels (on a CPU, operations) by their time in one step."""
    on_gpu = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity
    wait(device)
    with torch.profiler.profile(activities=[activity.CUDA if on_gpu else activity.CPU]) as profile:
        for _ in range(repeats):
            step()
        wait(device)

    def total(event: Any) -> float:
        return event.self_device_time_total if on_gpu else event.self_cpu_time_total

    events = sorted(profile.key_averages(), key=total, reverse=True)
    return [
        {
            "name": event.key[:NAME_LENGTH],
            "us_per_step": total(event) / repeats,
            "count_per_step": event.count / repeats,
        }
        for event in events[:LISTED]
        if total(event) > 0
    ]


def show(title: str, rows: list[dict[str, float | str]]) -> None:
    print(f"\n{title}\n{'µs':>9s} {'count':>6s}  name")
    for row in rows:
        print(f"{row['us_per_step']:9.1f} {row['count_per_step']:6.1f}  {row['name']}")


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
    ms = fastest(steps, sizes, device)
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
