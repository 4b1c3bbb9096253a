"""The state of a training run as one safetensors file: to stop anywhere and lose nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lieaugmenter.runs import RunError, read_tensors, write_tensors


def save_checkpoint(
    path: Path,
    *,
    model: nn.Module,
    augmenter: nn.Module,
    optimizer: Optimizer,
    progress: dict[str, Any],
    averages: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights, optimiser state, random state and progress in one atomic step.

    Parameters
    ----------
    path
        The file.
    model, augmenter, optimizer
        What is trained.
    progress
        Anything JSON can hold: epoch, step, records.
    averages
        Running averages of the weights, where there are any.
    """
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"average.{key}": value for key, value in (averages or {}).items()}
    tensors |= {f"augmenter.{key}": value for key, value in augmenter.state_dict().items()}
    state = optimizer.state_dict()
    scalars: dict[str, dict[str, float]] = {}
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                scalars.setdefault(str(index), {})[key] = value
    tensors["rng.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    write_tensors(path, tensors, {"progress": progress, "optimizer_scalars": scalars})


def _lay_out_like_parameters(optimizer: Optimizer) -> None:
    """Give moments the memory layout of their parameter: fused steps pair entries by place."""
    for parameter, entries in optimizer.state.items():
        for key, value in entries.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                entries[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def load_checkpoint(
    path: Path,
    *,
    model: nn.Module,
    augmenter: nn.Module,
    optimizer: Optimizer,
    averages: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Put everything back in place and return the progress.

    Parameters
    ----------
    path
        The file that `save_checkpoint` wrote.
    model, augmenter, optimizer
        Built as they were for the run that is continued.
    averages
        Running averages of the weights, to be written in place.
    """
    tensors, metadata = read_tensors(path)

    def named(prefix: str) -> dict[str, Tensor]:
        start = len(prefix) + 1
        return {name[start:]: t for name, t in tensors.items() if name.startswith(prefix + ".")}

    try:
        model.load_state_dict(named("model"))
        augmenter.load_state_dict(named("augmenter"))
        progress = metadata["progress"]
        kept = named("average")
        for name, average in (averages or {}).items():
            average.copy_(kept[name])
    except (RuntimeError, KeyError) as error:
        raise RunError(
            f"{path} was written by a run with another network or augmenter: {error}"
        ) from None
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in named("optimizer").items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    for index, entries in metadata.get("optimizer_scalars", {}).items():
        state.setdefault(int(index), {}).update(entries)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    _lay_out_like_parameters(optimizer)
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng.cuda"])
    return progress
