"""On a GPU: the captured step against the plain one, numbers and time; and the two-body demo.

Prints a table and writes benchmarks/results/captured_step.json (or --out).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from lieaugmenter import LieAugmenter, Objective, StructuredAction, fit
from lieaugmenter.actions import AffineAction
from lieaugmenter.analysis.compare import absolute_cosine
from lieaugmenter.data.dynamics import two_body
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.nets import CNN, MLP
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "captured_step.json"


class PointNet(nn.Module):
    """A small network on padded points, to have a structured input."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = MLP((4,), (1,), hidden=(64, 64))

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        points = torch.cat([x["charges"].unsqueeze(-1), x["positions"]], dim=-1)
        values = self.mlp(points.flatten(0, 1)).view(*points.shape[:2])
        return (values * x["real"]).sum(1)


def two_body_net() -> MLP:
    """The demo's network."""
    return MLP((8,), (8,), hidden=(128, 128, 128))


def two_body_task() -> tuple[nn.Module, LieAugmenter, tuple[Tensor, Tensor]]:
    task = two_body(seed=0)
    augmenter = LieAugmenter(
        "vector", 8, blocks=[2] * 4, objective=PAPER_TWO_BODY, warmup_steps=500
    )
    return two_body_net(), augmenter, (task.x_train, task.y_train)


def image_task() -> tuple[nn.Module, LieAugmenter, tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(4096, 1, 28, 28, generator=rng)
    y = torch.randint(10, (4096,), generator=rng)
    augmenter = LieAugmenter("image", output="invariant", range=3.0, warmup_steps=50)
    return CNN((1, 28, 28), 10), augmenter, (x, y)


def points_task() -> tuple[nn.Module, LieAugmenter, tuple[dict[str, Tensor], Tensor]]:
    rng = torch.Generator().manual_seed(0)
    positions = torch.randn(4096, 20, 3, generator=rng)
    real = (torch.rand(4096, 20, generator=rng) < 0.8).float()
    charges = torch.rand(4096, 20, generator=rng) * real
    y = (positions.norm(dim=-1) * real).sum(1)
    action = StructuredAction({"positions": AffineAction(3)}, masks={"positions": "real"})
    augmenter = LieAugmenter(
        action, n_generators=6, output="invariant", n_views=3, range=0.5, objective=Objective()
    )
    x = {"positions": positions * real.unsqueeze(-1), "charges": charges, "real": real}
    return PointNet(), augmenter, (x, y)


def train(
    make: Callable[[], tuple[nn.Module, LieAugmenter, tuple[object, Tensor]]],
    *,
    capture: bool,
    precision: str,
    epochs: int,
) -> tuple[list[Tensor], float]:
    torch.manual_seed(0)
    model, augmenter, data = make()
    # The first step of a kind loads libraries and picks algorithms: not part of the time.
    fit(*make(), epochs=1, precision=precision, device="cuda", capture=capture, progress=False)
    torch.cuda.synchronize()
    start = time.perf_counter()
    fit(
        model,
        augmenter,
        data,
        epochs=epochs,
        precision=precision,
        device="cuda",
        capture=capture,
        progress=False,
    )
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return [p.detach().cpu() for p in [*model.parameters(), *augmenter.parameters()]], seconds


def compare(name: str, make: Callable, precision: str, epochs: int) -> dict[str, object]:
    plain, plain_seconds = train(make, capture=False, precision=precision, epochs=epochs)
    again, _ = train(make, capture=False, precision=precision, epochs=epochs)
    captured, captured_seconds = train(make, capture=True, precision=precision, epochs=epochs)

    def apart_from_plain(other: list[Tensor]) -> float:
        return max(float((a - b).abs().max()) for a, b in zip(plain, other, strict=True))

    apart, noise = apart_from_plain(captured), apart_from_plain(again)
    size = max(float(a.abs().max()) for a in plain)
    row = {
        "precision": precision,
        "epochs": epochs,
        "plain_s": plain_seconds,
        "captured_s": captured_seconds,
        "speed_up": plain_seconds / captured_seconds,
        "largest_parameter_difference": apart,
        "largest_difference_of_two_plain_runs": noise,
        "largest_parameter": size,
    }
    print(
        f"{name:9s} {precision:8s} plain {plain_seconds:6.2f} s  captured {captured_seconds:6.2f} s"
        f"  ×{row['speed_up']:.1f}  apart {apart:.1e} (plain twice {noise:.1e}) of {size:.2f}",
        flush=True,
    )
    return row


def paper_run(seed: int) -> dict[str, float]:
    task = two_body(seed=seed)
    torch.manual_seed(seed)
    model = two_body_net()
    augmenter = LieAugmenter(
        "vector", 8, blocks=[2] * 4, objective=PAPER_TWO_BODY, warmup_steps=2290
    )
    start = time.perf_counter()
    fit(model, augmenter, (task.x_train, task.y_train), epochs=100, seed=seed, progress=False)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    prediction = augmenter.predict(model, task.x_test.cuda()).cpu()
    return {
        "seed": seed,
        "seconds": seconds,
        "cosine": float(absolute_cosine(augmenter.generators.detach().cpu(), task.generator)),
        "averaged_mse": float((prediction - task.y_test).square().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    # cuDNN's fastest float32 convolutions do not repeat to the bit; these do.
    torch.backends.cudnn.deterministic = True
    tasks = {"two-body": two_body_task, "image": image_task, "points": points_task}
    steps = {
        f"{name}, {precision}": compare(name, make, precision, arguments.epochs)
        for name, make in tasks.items()
        for precision in ("float32", "bf16")
    }
    runs = [paper_run(seed) for seed in range(3)]
    for row in runs:
        print(row, flush=True)
    content = {"environment": environment(), "steps": steps, "two_body_100_epochs": runs}
    write_json(arguments.out, content)


if __name__ == "__main__":
    main()
