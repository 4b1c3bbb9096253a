"""Speed ratios on this machine, each pair timed in turns within one run.

Prints a table and writes benchmarks/results/ratios.json. Ratios carry from machine to machine far
better than times do; timings are never asserted in a test.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from lieaugmenter import AffineAction, Elements, LieAugmenter
from lieaugmenter.data.dynamics import true_generator
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.nets import CNN, MLP
from lieaugmenter.runs import environment, write_json

BATCH, VIEWS = 64, 10
# Faster only counts while the result is the same.
LARGEST_DIFFERENCE = 1e-4
RESULTS = Path(__file__).parent / "results" / "ratios.json"


def in_turns(
    ours: Callable[[], object], reference: Callable[[], object], rounds: int, repeats: int
) -> tuple[float, float]:
    """Seconds of a call of ours, and how many times that the reference takes.

    Both are timed alternately and the fastest round of each counts: what else the machine does
    only adds time.
    """
    for function in (ours, reference):
        for _ in range(3):
            function()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, seconds in zip((ours, reference), times, strict=True):
            start = time.perf_counter()
            for _ in range(repeats):
                function()
            seconds.append((time.perf_counter() - start) / repeats)
    mine, theirs = (min(seconds) for seconds in times)
    return mine, theirs / mine


def leaf(*shape: int, norm: float, zero_last_row: bool = False) -> Tensor:
    generators = torch.randn(*shape)
    if zero_last_row:
        generators[:, -1] = 0.0
    scale = norm / generators.flatten(1).norm(dim=1)
    return (generators * scale[:, None, None]).requires_grad_()


def vectors_against_matrix_exp(rounds: int) -> dict[str, float]:
    """exp(wL)x for d = 8, one generator, forward and backward."""
    basis = leaf(1, 8, 8, norm=8**0.5)
    x, cotangent = torch.randn(BATCH, 8), torch.randn(BATCH, VIEWS, 8)
    weights = torch.rand(BATCH, VIEWS, 1) * 4 - 2

    def ours() -> Tensor:
        return Elements(weights, basis, bound=2 * 8**0.5).apply(x)

    def reference() -> Tensor:
        return (torch.linalg.matrix_exp(weights[..., None] * basis) @ x[:, None, :, None])[..., 0]

    return compare(ours, reference, basis, cotangent, rounds)


def points_against_matrix_exp(rounds: int) -> dict[str, float]:
    """Six generators in homogeneous coordinates on 20 points, forward and backward."""
    basis = leaf(6, 4, 4, norm=3**0.5, zero_last_row=True)
    points, cotangent = torch.randn(BATCH, 20, 3), torch.randn(BATCH, VIEWS, 20, 3)
    coefficients = torch.rand(BATCH, VIEWS, 6) * 2 - 1
    action = AffineAction(3)
    lifted = nn.functional.pad(points, (0, 1), value=1.0)

    def ours() -> Tensor:
        elements = Elements(coefficients, basis, bound=6 * 3**0.5, rows=action.rows)
        return action.act(elements, points)

    def reference() -> Tensor:
        algebra = torch.einsum("bkc,cij->bkij", coefficients, basis)
        return (lifted[:, None] @ torch.linalg.matrix_exp(algebra).mT)[..., :3]

    return compare(ours, reference, basis, cotangent, rounds)


def compare(
    ours: Callable[[], Tensor],
    reference: Callable[[], Tensor],
    basis: Tensor,
    cotangent: Tensor,
    rounds: int,
) -> dict[str, float]:
    def both_ways(function: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            function().backward(cotangent)
            basis.grad = None

        return run

    with torch.no_grad():
        apart = float((ours() - reference()).abs().max())
    mine, ratio = in_turns(both_ways(ours), both_ways(reference), rounds, 20)
    return {"ratio": ratio, "largest_difference": apart, "ms": mine * 1e3}


def step_against_plain(
    make_net: Callable[[], nn.Module],
    augmenter: LieAugmenter,
    x: Tensor,
    y: Tensor,
    rounds: int,
    repeats: int,
) -> dict[str, float]:
    """A whole training step against one of the same network on (K + 1) B samples."""
    ours_net, plain_net = make_net(), make_net()
    ours_optimizer = torch.optim.Adam([*ours_net.parameters(), *augmenter.parameters()], fused=True)
    plain_optimizer = torch.optim.Adam(plain_net.parameters(), fused=True)
    many_x = x.repeat(VIEWS + 1, *[1] * (x.ndim - 1))
    many_y = y.repeat(VIEWS + 1, *[1] * (y.ndim - 1))
    criterion = nn.functional.mse_loss if y.is_floating_point() else nn.functional.cross_entropy

    def ours() -> None:
        ours_optimizer.zero_grad()
        augmenter.loss(ours_net, x, y).backward()
        ours_optimizer.step()

    def plain() -> None:
        plain_optimizer.zero_grad()
        criterion(plain_net(many_x), many_y).backward()
        plain_optimizer.step()

    mine, ratio = in_turns(ours, plain, rounds, repeats)
    return {"ratio": 1 / ratio, "ms": mine * 1e3}


def two_body_step(width: int, rounds: int) -> dict[str, float]:
    """The paper's two-body step, at the generator that it finds."""
    augmenter = LieAugmenter("vector", 8, blocks=[2] * 4, objective=PAPER_TWO_BODY, warmup_steps=0)
    with torch.no_grad():
        augmenter.basis.raw.copy_(true_generator())
    x, y = torch.randn(BATCH, 8), torch.randn(BATCH, 8)
    hidden = (width, width, width)
    return step_against_plain(
        lambda: MLP((8,), (8,), hidden=hidden), augmenter, x, y, 2 * rounds, 10
    )


def image_step(rounds: int) -> dict[str, float]:
    augmenter = LieAugmenter("image", output="invariant", range=3.0, warmup_steps=0)
    x, y = torch.rand(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))
    return step_against_plain(lambda: CNN((1, 28, 28), 10), augmenter, x, y, max(3, rounds // 5), 1)


BARS = {
    "acting on vectors, times faster than matrix_exp": (vectors_against_matrix_exp, ">=", 10.0),
    "acting on points, times faster than matrix_exp": (points_against_matrix_exp, ">=", 3.0),
    "two-body step, MLP of 3 × 256, / plain step on as many samples": (
        partial(two_body_step, 256),
        "<=",
        1.25,
    ),
    "two-body step, the demo's MLP of 3 × 128, / plain step on as many samples": (
        partial(two_body_step, 128),
        "<=",
        1.25,
    ),
    "28x28 CNN step / plain step on as many samples": (image_step, "<=", 1.15),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="turns for each pair")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    measured = {}
    for name, (function, sign, bar) in BARS.items():
        numbers = function(arguments.rounds)
        reached = numbers["ratio"] >= bar if sign == ">=" else numbers["ratio"] <= bar
        reached = reached and numbers.get("largest_difference", 0.0) <= LARGEST_DIFFERENCE
        measured[name] = {**numbers, "bar": f"{sign} {bar:g}", "reached": reached}
        print(f"{name}: {numbers['ratio']:.2f} (bar {sign} {bar:g})")
    settings = {"batch": BATCH, "views": VIEWS, "rounds": arguments.rounds, "seed": 0}
    content = {"settings": settings, "environment": environment(), "ratios": measured}
    write_json(arguments.out, content)


if __name__ == "__main__":
    main()
