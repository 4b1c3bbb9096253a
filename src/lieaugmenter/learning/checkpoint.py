"""The state of a training run as one safetensors file: to stop anywhere and lose nothing.

The last two are kept: should the newer one be damaged, the run goes on from the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lieaugmenter.runs import (
    RunError,
    RunFolder,
    check_same,
    fields_of,
    in_short,
    read_tensors,
    write_tensors,
)


def save_checkpoint(
    run: RunFolder,
    *,
    model: nn.Module,
    augmenter: nn.Module,
    optimizer: Optimizer,
    progress: dict[str, Any],
    settings: Mapping[str, Any],
    averages: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights, optimiser state, random state and progress in one atomic step.

    Parameters
    ----------
    run
        Its folder; what was the last checkpoint there becomes the one before.
    model, augmenter, optimizer
        What is trained.
    progress
        Anything JSON can hold: epoch, step, records.
    settings
        What the result depends on besides these, as JSON holds it: a run with others is not
        continued.
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
    write_tensors(
        run.checkpoint_path,
        tensors,
        {"progress": progress, "optimizer_scalars": scalars, "settings": settings},
        previous=run.previous_checkpoint_path,
    )


def lay_out_like_parameters(optimizer: Optimizer) -> None:
    """Give moments the memory layout of their parameter: fused steps pair entries by place.

    All are copied: what was read lies in the file, which would stay open.
    """
    for parameter, entries in optimizer.state.items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                alike = parameter if value.shape == parameter.shape else value
                entries[key] = torch.empty_like(alike, dtype=value.dtype).copy_(value)


def load_checkpoint(
    run: RunFolder,
    *,
    model: nn.Module,
    augmenter: nn.Module,
    optimizer: Optimizer,
    settings: Mapping[str, Any],
    averages: Mapping[str, Tensor] | None = None,
) -> dict[str, Any] | None:
    """Put everything back in place and return the progress; None if there is no checkpoint yet.

    Parameters
    ----------
    run
        The folder that `save_checkpoint` wrote to.
    model, augmenter, optimizer, settings
        As they were for the run that is continued.
    averages
        Running averages of the weights, to be written in place.

    Raises
    ------
    RunError
        The settings differ, with both values of each; or no checkpoint is whole.
    """
    found = _newest_whole(run)
    if found is None:
        return None
    path, tensors, metadata = found
    check_same(run.path, metadata["settings"], settings)

    def named(prefix: str) -> dict[str, Tensor]:
        start = len(prefix) + 1
        return {name[start:]: t for name, t in tensors.items() if name.startswith(prefix + ".")}

    try:
        model.load_state_dict(named("model"))
        augmenter.load_state_dict(named("augmenter"))
        kept = named("average")
        for name, average in (averages or {}).items():
            average.copy_(kept[name])
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in named("optimizer").items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = tensor
        for index, entries in metadata["optimizer_scalars"].items():
            state.setdefault(int(index), {}).update(entries)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        lay_out_like_parameters(optimizer)
        torch.set_rng_state(tensors["rng.cpu"])
        if "rng.cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["rng.cuda"])
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise RunError(
            f"{path} was written by a run with another network or augmenter: {in_short(error)}"
        ) from None
    return metadata["progress"]


class _Metadata(TypedDict):
    """What is kept beside the tensors."""

    progress: dict[str, Any]
    optimizer_scalars: dict[str, dict[str, float]]
    settings: dict[str, Any]


def _newest_whole(run: RunFolder) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint, or the one before it if that is damaged, which the user is told."""
    kept = [p for p in (run.checkpoint_path, run.previous_checkpoint_path) if p.exists()]
    damaged: list[str] = []
    for path in kept:
        try:
            tensors, metadata = read_tensors(path)
            metadata = fields_of(_Metadata, metadata, path)
        except RunError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(
                f"{damaged[0]}. The run goes on from the checkpoint before it", stacklevel=2
            )
        return path, tensors, metadata
    if damaged:
        raise RunError(
            f"{'; '.join(damaged)}. There is no other checkpoint: remove {kept[0].parent} to start "
            f"this training again"
        )
    return None
