"""Optimisers with the learning rates of a schedule, in groups that a captured step can look at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lieaugmenter.learning.muon import Muon

SCHEDULES = ("constant", "cosine", "warm-cosine")
OPTIMIZERS: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "muon": Muon}
# The cosine ends at this fraction of the starting rate.
_LAST_RATE = 0.01
# A warm schedule rises over this share of training.
_RISE = 0.05


def rate_at(progress: float, lr: float, schedule: str) -> float:
    """The learning rate after a fraction of training."""
    if schedule == "constant":
        return lr
    falling = 0.5 * (1 + math.cos(math.pi * progress))
    rate = lr * (_LAST_RATE + (1 - _LAST_RATE) * falling)
    return rate * min(1.0, progress / _RISE) if schedule == "warm-cosine" else rate


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every group its share of the rate; in place where a captured step looks at it."""
    for group in optimizer.param_groups:
        scaled = rate * group["rate_scale"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled


def make_optimizer(
    groups: list[dict[str, Any]],
    lr: float,
    device: torch.device,
    factory: Callable[[list[dict[str, Any]]], Optimizer] | str = "adam",
) -> Optimizer:
    """One of `OPTIMIZERS`, or what a factory makes, for the groups that have parameters."""
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError("neither the model nor the augmenter has a parameter to train")
    if not isinstance(factory, str):
        made = factory(groups)
        # The schedule multiplies whatever rates the user's optimiser came with.
        for group in made.param_groups:
            group["rate_scale"] = float(group["lr"]) / lr
        return made
    for group in groups:
        group.setdefault("rate_scale", 1.0)
    groups = _merged(groups)
    if device.type == "cuda":
        rate = torch.tensor(lr, device=device)
        return OPTIMIZERS[factory](groups, lr=rate, fused=True, capturable=True)
    return OPTIMIZERS[factory](groups, lr=lr, fused=device.type == "cpu")


def _merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups with the same options as one: an optimiser's step costs a launch for each group."""
    merged: list[dict[str, Any]] = []
    for group in groups:
        options = {key: value for key, value in group.items() if key != "params"}
        for known in merged:
            if {key: value for key, value in known.items() if key != "params"} == options:
                known["params"] = [*known["params"], *group["params"]]
                break
        else:
            merged.append(dict(group))
    return merged


def trainable(module: nn.Module, **options: Any) -> dict[str, Any]:
    """The group of a module's parameters that are trained, with its options."""
    return {"params": [p for p in module.parameters() if p.requires_grad], **options}


def optimizer_tensors(optimizer: Optimizer) -> list[Tensor]:
    """The tensors of an optimiser's state."""
    entries = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in entries if isinstance(value, Tensor)]
