"""The weights of a network: their running average in training, and a file of half the size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.runs import RunError, in_short, read_tensors, write_tensors

# Tensors of fewer entries keep all their bits: norms, biases, running statistics, small layers.
_SMALL = 10_000


class WeightAverage:
    """The running average of a network's weights and running statistics over its last steps.

    Steps that lie `length` back count 1/e as much as the last one. The first steps are not special:
    after a few lengths nothing is left of the weights that training began with.

    Parameters
    ----------
    model
        The network; its tensors must stay where they are.
    length
        In steps.

    Examples
    --------
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = model.weight.data.fill_(0.0)
    >>> average = WeightAverage(model, length=2.0)
    >>> _ = model.weight.data.fill_(1.0)
    >>> average.update()
    >>> round(float(average.tensors["weight"]), 4)  # 1 - exp(-1/2)
    0.3935
    """

    def __init__(self, model: nn.Module, length: float) -> None:
        state = model.state_dict()
        self._own = {name: t for name, t in state.items() if t.is_floating_point()}
        self.tensors = {name: tensor.clone() for name, tensor in self._own.items()}
        self._share = 1 - math.exp(-1 / length)

    @torch.no_grad()
    def update(self) -> None:
        """Let the present weights enter."""
        averages, own = list(self.tensors.values()), list(self._own.values())
        # One launch for all; torch's own optimisers use it as well.
        torch._foreach_lerp_(averages, own, self._share)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def write(self) -> None:
        """Give the network the averages for good."""
        for name, tensor in self._own.items():
            tensor.copy_(self.tensors[name])

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The network has the averages for the time of a block, and then its own weights again."""
        own = {name: tensor.clone() for name, tensor in self._own.items()}
        self.write()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, tensor in self._own.items():
                    tensor.copy_(own[name])


def half(tensor: Tensor) -> Tensor:
    """A large matrix in float16, where that can hold it; other tensors as they are.

    Ten bits of a weight stay, an error of at most 1 in 2048, and weights below 6e-8 become zero.
    """
    if tensor.numel() < _SMALL or tensor.dtype != torch.float32:
        return tensor
    shortened = tensor.to(torch.float16)
    return shortened if bool(shortened.isfinite().all()) else tensor


def save_weights(
    path: Path,
    model: nn.Module,
    augmenter: nn.Module,
    *,
    averages: Mapping[str, Tensor] | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write what prediction needs, the network's matrices in half precision.

    Parameters
    ----------
    path
        The file.
    model, augmenter
        What was trained.
    averages
        Tensors that take the place of the model's own, as of a `WeightAverage`.
    about
        Anything JSON can hold.
    """
    tensors = {name: half(t) for name, t in (model.state_dict() | dict(averages or {})).items()}
    tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
    tensors |= {f"augmenter.{name}": tensor for name, tensor in augmenter.state_dict().items()}
    write_tensors(path, tensors, about)


def load_weights(path: Path, model: nn.Module, augmenter: nn.Module) -> dict[str, Any]:
    """Read what `save_weights` wrote, in place and in the precision of the modules.

    Parameters
    ----------
    path
        The file.
    model, augmenter
        Built as they were for training.

    Returns
    -------
    dict
        What was written about it.
    """
    tensors, about = read_tensors(path)
    try:
        for prefix, module in (("model.", model), ("augmenter.", augmenter)):
            own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            module.load_state_dict(own)
    except RuntimeError as error:
        raise RunError(f"{path} holds the weights of another network: {in_short(error)}") from None
    return about
