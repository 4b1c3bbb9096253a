"""What a step costs against views, generators, dimension, batch and image size, each beside the
plain step on as many samples.

The plain step trains the same network on batch · (K + 1) samples without augmentation. Both are
timed in turns and the fastest round of each counts. On a CPU it is the time of one processor, which
other programs disturb less than the clock; on a GPU both steps are CUDA graphs. Memory is the most
that a step holds beyond what there is before it. Writes benchmarks/results/costs-DEVICE.json
(or --out). --draw makes docs/images/costs-DEVICE.png of such a file and prints it as a table.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from steps import TrainingStep, seconds
from torch import Tensor, nn

from lieaugmenter import LieAugmenter
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.nets import CNN, MLP
from lieaugmenter.runs import environment, write_json

ROOT = Path(__file__).parent.parent
CLASSES = 10
ROUNDS = 15


@dataclass(frozen=True)
class Setting:
    """One step: vectors of dimension d, or images with a side in pixels."""

    views: int = 10
    generators: int = 1
    dim: int = 8
    batch: int = 64
    side: int | None = None

    def augmenter(self) -> LieAugmenter:
        action, dim = ("vector", self.dim) if self.side is None else ("image", None)
        return LieAugmenter(
            action, dim, self.generators, "invariant", self.views, warmup_steps=0, range=1.0
        )

    def network(self) -> nn.Module:
        if self.side is None:
            return MLP((self.dim,), (1,), hidden=(128, 128, 128))
        return CNN((1, self.side, self.side), CLASSES)

    def data(self, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
        rng = torch.Generator().manual_seed(0)
        if self.side is None:
            x = torch.randn(n, self.dim, generator=rng).to(device)
            return x, x.norm(dim=1, keepdim=True)
        x = torch.rand(n, 1, self.side, self.side, generator=rng)
        return x.to(device), torch.randint(CLASSES, (n,), generator=rng).to(device)


def curves(device: torch.device) -> dict[str, list[Setting]]:
    """What is varied, and the settings; one at a time from a common one."""
    large = device.type == "cuda"
    vectors, images = Setting(), Setting(views=10 if large else 4, batch=64 if large else 16)
    sides = [8, 16, 28, 56, 112] if large else [8, 16, 28, 56]
    batches = [16, 64, 256, 1024] + ([4096] if large else [])
    return {
        "K": [replace(vectors, views=k) for k in (1, 2, 5, 10, 20, 40)],
        "C": [replace(vectors, generators=c) for c in (1, 2, 4, 8, 16)],
        "d": [replace(vectors, dim=d) for d in (2, 4, 8, 16, 32, 64)],
        "batch": [replace(vectors, batch=b) for b in batches],
        "image side": [replace(images, side=s) for s in sides],
        "C, images": [replace(images, side=28, generators=c) for c in (1, 2, 4, 6)],
    }


def value(curve: str, setting: Setting) -> int:
    """Where a setting stands on its curve."""
    fields = {"K": "views", "d": "dim", "batch": "batch", "image side": "side"}
    return getattr(setting, fields.get(curve, "generators"))


def make_step(
    setting: Setting, learner: LieAugmenter | Unaugmented, n: int, device: torch.device
) -> TrainingStep:
    torch.manual_seed(0)
    model = setting.network().to(device)
    return TrainingStep(model, learner.to(device), *setting.data(n, device), bf16=False)


def fastest(steps: list[TrainingStep], rounds: int, device: torch.device) -> list[float]:
    """Seconds of each step, in turns; what else the machine does only adds time."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    repeats = [max(1, round(0.03 / seconds(step, 3, device, clock))) for step in steps]
    times = [
        [seconds(step, n, device, clock) for step, n in zip(steps, repeats, strict=True)]
        for _ in range(rounds)
    ]
    return [min(column) for column in zip(*times, strict=True)]


def mebibytes(step: Callable[[], object], device: torch.device) -> float:
    """The most that a step holds beyond what there was before it."""
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    held = most = 0
    for change in allocations(profile):
        held += change
        most = max(most, held)
    return most / 2**20


def allocations(profile: Any) -> Iterator[int]:
    """Bytes taken (above 0) and given back (below), in the order of time."""
    events = profile.profiler.kineto_results.events()
    found = [event for event in events if event.name() == "[memory]"]
    return (event.nbytes() for event in sorted(found, key=lambda event: event.start_ns()))


def measure(setting: Setting, rounds: int, device: torch.device) -> dict[str, float]:
    together = setting.batch * (setting.views + 1)
    steps = [
        make_step(setting, setting.augmenter(), setting.batch, device),
        make_step(setting, Unaugmented(), together, device),
    ]
    memory = [mebibytes(step.eager, device) for step in steps]
    times = fastest(steps, rounds, device)
    return {
        "ms": times[0] * 1e3,
        "plain_ms": times[1] * 1e3,
        "ratio": times[0] / times[1],
        "mib": memory[0],
        "plain_mib": memory[1],
        "memory_ratio": memory[0] / memory[1],
    }


def run(device: torch.device, rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    for curve, settings in curves(device).items():
        results[curve] = []
        for setting in settings:
            found = measure(setting, rounds, device)
            at = value(curve, setting)
            results[curve].append({"value": at, **found, "setting": asdict(setting)})
            print(
                f"{curve:>12s} = {at:<5d} {found['ms']:9.3f} ms, {found['ratio']:5.2f} times plain;"
                f" {found['mib']:8.1f} MiB, {found['memory_ratio']:5.2f} times plain",
                flush=True,
            )
    return {"device": device.type, "curves": results, "environment": environment()}


def draw(content: dict[str, Any], path: Path) -> None:
    """Times on the left, memory on the right, a row for each curve."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    shown = content["curves"]
    figure = Figure(figsize=(8.0, 2.3 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 2, squeeze=False)
    for axes, (curve, points) in zip(grid, shown.items(), strict=True):
        values = [point["value"] for point in points]
        for axis, ours, unit in zip(axes, ("ms", "mib"), ("ms", "MiB"), strict=True):
            for key, label, style in ((ours, "augmented", "o-"), (f"plain_{ours}", "plain", "s--")):
                axis.plot(values, [point[key] for point in points], style, label=label)
            axis.set(xscale="log", yscale="log", xlabel=curve, ylabel=f"{unit} a step")
            axis.set_xticks(values, [str(v) for v in values])
            lowest, highest = (
                pick(point[key] for point in points for key in (ours, f"plain_{ours}"))
                for pick in (min, max)
            )
            # Room around, so that noise on a flat curve looks like noise.
            axis.set_ylim(lowest / 1.5, highest * 1.5)
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
    grid[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def table(content: dict[str, Any]) -> str:
    lines = [
        "| varied | step (ms) | time, of plain | memory (MiB) | memory, of plain |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for curve, points in content["curves"].items():
        lines += [
            f"| {curve} = {p['value']} | {p['ms']:.3g} | {p['ratio']:.2f} | {p['mib']:.3g} | "
            f"{p['memory_ratio']:.2f} |"
            for p in points
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draw", type=Path, metavar="JSON")
    chosen = parser.parse_args()
    if chosen.draw:
        content = json.loads(chosen.draw.read_text())
        draw(content, ROOT / "docs" / "images" / f"costs-{content['device']}.png")
        print(table(content))
        return
    out = chosen.out or ROOT / "benchmarks" / "results" / f"costs-{chosen.device}.json"
    write_json(out, run(torch.device(chosen.device), chosen.rounds))


if __name__ == "__main__":
    main()
