"""Training steps to be timed beside each other: made, recorded on a GPU, and taken in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter import LieAugmenter
from lieaugmenter.actions.base import Batch
from lieaugmenter.learning.captured import CapturedStep
from lieaugmenter.learning.optimizer import make_optimizer, optimizer_tensors, trainable
from lieaugmenter.learning.unaugmented import Unaugmented

# Kernels that are listed, and the characters of a name that are shown.
_LISTED, _NAME_LENGTH = 45, 90


class TrainingStep:
    """One step on one batch, over and over.

    Parameters
    ----------
    model, learner
        What is trained, and the loss; both are on the batch's device.
    x, y
        The batch.
    bf16
        Whether the model runs under autocast.
    recorded
        On a GPU, whether the step is a CUDA graph.
    """

    def __init__(
        self,
        model: nn.Module,
        learner: LieAugmenter | Unaugmented,
        x: Batch,
        y: Tensor,
        *,
        bf16: bool,
        recorded: bool = True,
    ) -> None:
        self.model, self.learner, self.batch = model, learner.train(), (x, y)
        self.device, self.bf16 = y.device, bf16
        groups = [trainable(model), trainable(learner, **learner.optimizer_options)]
        self.optimizer = make_optimizer(groups, 1e-3, y.device)
        self.captured: CapturedStep | None = None
        if recorded and self.device.type == "cuda":
            self.captured = CapturedStep(self._step, self.batch, self._state)
            first = self.captured.replay(*self.batch)
        else:
            first = self.eager()
        if not bool(first.isfinite().all()):
            raise RuntimeError("the first step gave a loss that is not a number")

    def __call__(self) -> None:
        """Take the step: replay it, where it is recorded."""
        if self.captured is None:
            self.eager()
        else:
            self.captured.graph.replay()

    def eager(self) -> Tensor:
        """Take the step operation by operation; the terms."""
        return self._step(*self.batch)

    def _step(self, x: Batch, y: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.learner.loss(self._forward, x, y)
        loss.backward()
        self.optimizer.step()
        return loss.parts.values_tensor

    def _forward(self, x: Batch) -> Tensor:
        if not self.bf16:
            return self.model(x)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            prediction = self.model(x)
        return prediction.float()

    def _state(self) -> list[Tensor]:
        modules: list[nn.Module] = [self.model, self.learner]
        held = [tensor for module in modules for tensor in module.state_dict().values()]
        return [*held, *optimizer_tensors(self.optimizer)]


def wait(device: torch.device) -> None:
    """Until everything is done that was asked of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(
    step: Callable[[], Any],
    repeats: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Of one step, from as many in a row."""
    wait(device)
    start = clock()
    for _ in range(repeats):
        step()
    wait(device)
    return (clock() - start) / repeats


def fastest(
    steps: dict[str, TrainingStep], *, rounds: int, replays: int, device: torch.device
) -> dict[str, float]:
    """Milliseconds of the fastest round of each, in turns, so that all see the same clock."""
    for step in steps.values():
        seconds(step, max(1, replays // 10), device)
    taken = [
        {name: 1e3 * seconds(step, replays, device) for name, step in steps.items()}
        for _ in range(rounds)
    ]
    return {name: min(found[name] for found in taken) for name in steps}


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
            "name": event.key[:_NAME_LENGTH],
            "us_per_step": total(event) / repeats,
            "count_per_step": event.count / repeats,
        }
        for event in events[:_LISTED]
        if total(event) > 0
    ]


def show(title: str, rows: list[dict[str, float | str]]) -> None:
    """A table of what `costliest` found."""
    print(f"\n{title}\n{'µs':>9s} {'count':>6s}  name")
    for row in rows:
        print(f"{row['us_per_step']:9.1f} {row['count_per_step']:6.1f}  {row['name']}")
