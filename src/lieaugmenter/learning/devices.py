"""Where training runs: which device, in which layout, with whose random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn


def pick_device(device: str | torch.device) -> torch.device:
    """The device asked for; for ``"auto"`` a GPU if there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; choose from auto, cpu, cuda") from None
    if chosen.type == "meta":
        raise ValueError(f"device={str(device)!r} holds no numbers; choose from auto, cpu, cuda")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r}, but this machine has no usable CUDA device")
    if chosen.type not in ("cpu", "cuda"):
        _check_that_it_is_there(chosen)
    return chosen


def _check_that_it_is_there(device: torch.device) -> None:
    try:
        torch.zeros(1, device=device)
    except Exception as error:  # each kind of device has errors of its own
        raise ValueError(
            f"device={str(device)!r}, but this machine has no usable one; choose from auto, cpu, "
            f"cuda"
        ) from error


def lay_channels_last(module: nn.Module) -> None:
    """Store the weights of two-dimensional convolutions in the layout of the fast ones, in place.

    Not by ``Module.to``, which refuses weights of five axes. Where channels are convolved by
    themselves, as in an EfficientNet, all is slower in that layout, and left as it is.
    """
    layers = (layer for layer in module.modules() if isinstance(layer, nn.Conv2d))
    if any(layer.groups > 1 for layer in layers):
        return
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


@contextmanager
def forked_rng(device: torch.device) -> Iterator[None]:
    """Seed freely inside; the caller's random state is untouched."""
    # Seeding reaches every GPU, so all of them are put back.
    devices = list(range(torch.cuda.device_count())) if device.type == "cuda" else []
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with torch.random.fork_rng(devices=devices), on_device:
        yield


@contextmanager
def fastest_convolutions(search: bool) -> Iterator[None]:
    """Let cuDNN try its algorithms on the shapes at hand, if asked to."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or search
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
