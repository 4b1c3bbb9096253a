"""Where batches come from: tensors kept on the device, or any DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader

from lieaugmenter.actions.base import Batch, batch_size, map_tensors, tensors_of

# Data up to this fraction of the free memory of a GPU is kept there.
_SHARE_OF_DEVICE = 0.5


class Batches(Protocol):
    """Batches of an epoch, in an order that the seed and the epoch determine."""

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        ...

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """The batches of epoch `index`, leaving out the first `skip`."""
        ...


class TensorBatches:
    """Shuffled batches of tensors; the order of an epoch is a function of seed and epoch alone."""

    def __init__(self, x: Batch, y: Tensor, size: int, *, seed: int, device: torch.device) -> None:
        n = batch_size(x)
        if len(y) != n:
            raise ValueError(f"X has {n} rows, y has {len(y)}")
        if n == 0:
            raise ValueError("X has no rows: there is nothing to learn from")
        home = device if _fits(x, y, device) else torch.device("cpu")
        self.x = map_tensors(lambda t: t.to(home), x)
        self.y = y.to(home)
        self.size = min(size, n)
        self.seed = seed
        self.device = device

    def __len__(self) -> int:
        return -(-len(self.y) // self.size)

    def order(self, index: int) -> Int[Tensor, " n"]:
        """The order of the samples in epoch `index`."""
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        return torch.randperm(len(self.y), generator=rng).to(self.y.device)

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        order = self.order(index)
        for start in range(skip * self.size, len(order), self.size):
            chosen = order[start : start + self.size]
            x = map_tensors(lambda t, at=chosen: t[at].to(self.device, non_blocking=True), self.x)
            yield x, self.y[chosen].to(self.device, non_blocking=True)


class LoaderBatches:
    """Batches of a DataLoader that yields pairs (x, y); its own order and size."""

    def __init__(self, loader: DataLoader[Any], *, device: torch.device) -> None:
        try:
            self.length = len(loader)
        except TypeError:
            raise ValueError(
                "the DataLoader's dataset has no length, which the learning-rate schedule and the "
                "progress bar need; give it a __len__"
            ) from None
        self.loader = loader
        self.device = device

    def __len__(self) -> int:
        return self.length

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        for number, item in enumerate(self.loader):
            if number < skip:
                continue
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise ValueError(
                    "the DataLoader must yield pairs (x, y); wrap its dataset so that it does"
                )
            x, y = item
            yield map_tensors(lambda t: t.to(self.device), x), y.to(self.device)


def _fits(x: Batch, y: Tensor, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    needed = sum(t.numel() * t.element_size() for t in [*tensors_of(x), y])
    free, _ = torch.cuda.mem_get_info(device)
    return needed < _SHARE_OF_DEVICE * free
