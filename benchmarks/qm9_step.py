"""One step of LieConv on molecules: augmented, and plain on as many; milliseconds and kernels.

Random molecules of QM9's sizes, six generators, the paper's batch and network. On a GPU both steps
are CUDA graphs in bfloat16, replayed in turns; the fastest round counts. Beside them stands what
the step takes at least: operations over the rate of a matrix product, bytes over that of a copy, as
both were measured on one H200. Prints tables and writes benchmarks/results/qm9_step.json (or
--out). --quick tries it out on tiny sizes, also on a CPU, and writes nothing unless --out is given.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from steps import TrainingStep, costliest, fastest, show
from torch import Tensor

from lieaugmenter import LieAugmenter, Objective
from lieaugmenter.actions.spatial import AffineAction
from lieaugmenter.actions.structured import StructuredAction
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.lie import kernels
from lieaugmenter.nets.lieconv import LieConv
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "qm9_step.json"
# The paper's weights; absolute errors, as the network was published.
OBJECTIVE = Objective(
    prediction=1.0, equivariance=3.0, similarity=0.1, sparsity=1e-3, alignment=1.0, proximity=0.0,
    absolute=True,
)  # fmt: skip
ELEMENTS = (1, 6, 7, 8, 9)
# Atoms of a molecule of QM9: mean, standard deviation, largest; and the mean of their square.
ATOMS, DEVIATION, MOST_ATOMS, ATOMS_SQUARED = 18.03, 2.94, 29, 333.8
# Room for atoms in a captured step; the mean of 125 molecules is above it once in 10¹² batches.
ROOM = 20.0
# bf16 matrix products and copies, as measured on an H200.
FLOPS, BYTES_PER_SECOND = 790e12, 4.3e12


@dataclass(frozen=True)
class Sizes:
    """What is measured, and how often."""

    molecules: int = 125
    views: int = 3
    generators: int = 6
    width: int = 1536
    blocks: int = 6
    rounds: int = 8
    replays: int = 60
    profiled: int = 5
    # Of the ways without a measure, some of which take a hundred times as long.
    rounds_without: int = 3
    replays_without: int = 8


@dataclass(frozen=True)
class Way:
    """How a step is made: room for atoms (None for padded molecules), by what, in which type."""

    room: float | None = ROOM
    by_kernels: bool = True
    recorded: bool = True
    bf16: bool = True


# The step without one of its measures, or with none of them.
WITHOUT = {
    "molecules padded to 29 atoms": Way(room=None),
    "no CUDA graph": Way(recorded=False),
    "layers of torch, padded, in place of kernels": Way(by_kernels=False),
    "the same in float32": Way(by_kernels=False, bf16=False),
    "the same without a CUDA graph": Way(by_kernels=False, bf16=False, recorded=False),
}

QUICK = Sizes(
    molecules=3, views=1, width=64, blocks=1, rounds=1, replays=1, profiled=1, rounds_without=1,
    replays_without=1,
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one part of a step computes and moves, forward and backward."""

    name: str
    flop: float
    bytes: float

    @property
    def floor_us(self) -> float:
        """Microseconds that it takes at least."""
        return max(self.flop / FLOPS, self.bytes / BYTES_PER_SECOND) * 1e6


def account(sizes: Sizes) -> list[Part]:
    """The parts of a step on real atoms only, every tensor read or written once a pass, in bf16."""
    molecules = sizes.molecules * (sizes.views + 1)
    n, pairs = molecules * ATOMS, molecules * ATOMS_SQUARED
    wide, inner, blocks = sizes.width, sizes.width // 4, sizes.blocks
    weights, hidden = 16, 32

    def product(before: int, after: int) -> tuple[float, float]:
        """A linear map of all atoms, and its two gradients."""
        return 6 * n * before * after, 2 * 3 * (n * (before + after) + before * after)

    flop = {
        "down and up": 2 * blocks * product(wide, inner)[0],
        "16 · inner to inner": blocks * product(weights * inner, inner)[0],
        "sums over neighbours": blocks * 6 * pairs * weights * inner,
        # Forward, and backward with the first layer made anew.
        "networks on pairs": blocks
        * 2 * pairs * (4 * 7 * hidden + 3 * hidden**2 + 3 * hidden * weights),
    }  # fmt: skip
    parameters = blocks * (2 * wide * inner + weights * inner**2)
    moved = {
        "down and up": 2 * blocks * product(wide, inner)[1],
        "16 · inner to inner": blocks * product(weights * inner, inner)[1],
        # What is gathered is written, its gradient read twice, the second time from the cache.
        "sums over neighbours": blocks
        * 2 * (2 * n * weights * inner + 4 * n * inner + 3 * pairs * weights),
        # The second layer is written and read three times, the third four; the weights are written,
        # their gradients copied and read three times.
        "networks on pairs": blocks * 2 * pairs * (4 * hidden + 11 * weights),
        "residual sum, norm, swish": (blocks + 1) * 2 * 11 * n * wide,
        "norm, swish": 2 * blocks * 2 * 8 * n * inner,
        # Gradient, weight and two moments in float32; weights to bf16, gradients from it.
        "Adam, change of type": parameters * (7 * 4 + 2 * 6),
    }  # fmt: skip
    return [Part(name, flop.get(name, 0.0), amount) for name, amount in moved.items()]


def show_account(parts: list[Part]) -> None:
    total = Part("together", sum(p.flop for p in parts), sum(p.bytes for p in parts))
    print(f"{'GFLOP':>9s} {'MB':>9s} {'µs':>7s}  at least")
    for part in [*parts, total]:
        floor = sum(p.floor_us for p in parts) if part is total else part.floor_us
        print(f"{part.flop / 1e9:9.1f} {part.bytes / 1e6:9.0f} {floor:7.0f}  {part.name}")


def random_molecules(n: int, device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
    """Molecules of QM9's sizes, padded to its largest, and a number for each."""
    rng = torch.Generator().manual_seed(0)
    drawn = (ATOMS + DEVIATION * torch.randn(n, 1, generator=rng)).round()
    mask = torch.arange(MOST_ATOMS) < drawn.clamp(3, MOST_ATOMS)
    charges = torch.tensor(ELEMENTS)[torch.randint(len(ELEMENTS), mask.shape, generator=rng)]
    positions = 1.5 * torch.randn(*mask.shape, 3, generator=rng)
    x = {
        "positions": positions * mask.unsqueeze(-1),
        "charges": charges * mask,
        "mask": mask.float(),
    }
    y = torch.randn(n, 1, generator=rng)
    return {name: field.to(device) for name, field in x.items()}, y.to(device)


def make_augmenter(sizes: Sizes) -> LieAugmenter:
    action = StructuredAction({"positions": AffineAction(3)}, masks={"positions": "mask"})
    return LieAugmenter(
        action, n_generators=sizes.generators, output="invariant", n_views=sizes.views, range=3.0,
        objective=OBJECTIVE,
    )  # fmt: skip


def make_step(
    learner: LieAugmenter | Unaugmented,
    n_molecules: int,
    sizes: Sizes,
    device: torch.device,
    way: Way | None = None,
) -> tuple[TrainingStep, float]:
    """A step, and the seconds until it was ready.

    Parameters
    ----------
    learner
        Its loss is trained.
    n_molecules
        In a batch, before augmentation.
    way
        How the step is made; with all its measures unless given.
    """
    way = way or Way()
    start = time.perf_counter()
    torch.manual_seed(0)
    model = LieConv(width=sizes.width, n_blocks=sizes.blocks, atoms_per_molecule=way.room)
    step = TrainingStep(
        model.to(device), learner.to(device), *random_molecules(n_molecules, device),
        bf16=way.bf16, recorded=way.recorded,
    )  # fmt: skip
    return step, time.perf_counter() - start


def measure(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    together = sizes.molecules * (sizes.views + 1)
    kinds: dict[str, tuple[LieAugmenter | Unaugmented, int]] = {
        "plain": (Unaugmented(OBJECTIVE), together),
        "augmented": (make_augmenter(sizes), sizes.molecules),
    }
    steps: dict[str, TrainingStep] = {}
    ready: dict[str, float] = {}
    peak: dict[str, float] = {}
    for name, (learner, n_molecules) in kinds.items():
        before = _memory(device, reset=True)
        steps[name], ready[name] = make_step(learner, n_molecules, sizes, device)
        peak[name] = _memory(device) - before
    ms = fastest(steps, rounds=sizes.rounds, replays=sizes.replays, device=device)
    parts = account(sizes)
    floor = sum(part.floor_us for part in parts) / 1e3
    for name in steps:
        rate = sum(part.flop for part in parts) / ms[name] / 1e9
        print(
            f"{name:9s} {ms[name]:8.3f} ms a step, {rate:6.1f} TFLOP/s, peak {peak[name]:.2f} GB, "
            f"ready after {ready[name]:.1f} s",
            flush=True,
        )
    ratio = ms["augmented"] / ms["plain"]
    print(f"augmented / plain on {together} molecules: {ratio:.3f}; at least {floor:.2f} ms\n")
    show_account(parts)
    listed = {name: costliest(step, sizes.profiled, device) for name, step in steps.items()}
    for name, rows in listed.items():
        show(f"{name} step", rows)
    return {
        "ms": ms,
        "ratio": ratio,
        "floor_ms": floor,
        "parts": [{**asdict(part), "floor_us": part.floor_us} for part in parts],
        "peak_gb": peak,
        # The first one also loads libraries.
        "start_up_s": ready,
        "kernels": listed,
    }


def measure_without(sizes: Sizes, device: torch.device) -> dict[str, float]:
    """Milliseconds of the augmented step in other ways, one after the other."""
    found = {}
    for name, way in WITHOUT.items():
        # A recorded step keeps what it was recorded with.
        without = nullcontext() if way.by_kernels else patch.object(kernels, "available", bool)
        with without:
            step, _ = make_step(make_augmenter(sizes), sizes.molecules, sizes, device, way)
            found |= fastest(
                {name: step},
                rounds=sizes.rounds_without,
                replays=sizes.replays_without,
                device=device,
            )
        print(f"{found[name]:8.3f} ms a step  {name}", flush=True)
        del step
    return found


def _memory(device: torch.device, *, reset: bool = False) -> float:
    """Gigabytes of the device that were in use at most, or with `reset` are now."""
    if device.type != "cuda":
        return 0.0
    torch.cuda.synchronize(device)
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try it out")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not arguments.quick:
        parser.error("there is no GPU to measure on; --quick only tries it out")
    sizes = QUICK if arguments.quick else Sizes()
    content = {
        "environment": environment(),
        "sizes": asdict(sizes),
        **measure(sizes, device),
        "without_ms": measure_without(sizes, device),
    }
    out = arguments.out or (None if arguments.quick else RESULTS)
    if out is not None:
        write_json(out, content)


if __name__ == "__main__":
    main()
