"""Networks that learn the same samples, and the samples that each of them sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.copies import first_alike, two_parts
from lieaugmenter.learning.engine import fit
from lieaugmenter.learning.streams import Reservoir, Stream
from lieaugmenter.lie.units import spread_of
from lieaugmenter.nets import MLP, ProductMLP, Standardized

# Samples on which generators are ordered.
SEARCHED = 2000
TEAM_WIDTHS = (64, 64, 64)


def team_network(in_shape: Sequence[int], out_shape: Sequence[int], classes: int) -> nn.Module:
    """The network of a team where none is asked for: smooth, because its derivatives matter.

    Parameters
    ----------
    in_shape, out_shape
        Shapes of one sample and of one output.
    classes
        Number of classes, 0 for numbers.
    """
    if classes:
        return MLP(in_shape, out_shape, hidden=TEAM_WIDTHS, smooth=True)
    return ProductMLP(in_shape, out_shape, hidden=TEAM_WIDTHS)


def standardising(make_network: Callable[[], nn.Module], inputs: Batch) -> Callable[[], nn.Module]:
    """Makes the same networks; those of a table see each column with mean 0 and deviation 1.

    Columns may be quantities of different units, of which one would drown the others.
    """
    if not isinstance(inputs, Tensor) or inputs.ndim != 2:
        return make_network
    mean, deviation = inputs.double().mean(0).to(inputs), spread_of(inputs)
    return lambda: Standardized(make_network(), mean.clone(), deviation.clone())


class Team(nn.Module):
    """The mean prediction of networks that were trained on the same samples.

    Parameters
    ----------
    members
        The networks.
    classes
        Number of classes, 0 for numbers. Of classes it is the mean probability: cross-entropy
        leaves a number common to all logits open, probabilities do not.
    """

    def __init__(self, members: Sequence[nn.Module], classes: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.classes = classes

    def forward(self, x: Batch) -> Tensor:
        outputs = [member(x) for member in self.members]
        if self.classes:
            outputs = [output.softmax(-1) for output in outputs]
        return torch.stack(outputs).mean(0)

    def singly(self) -> list[Team]:
        """Every member as a team of its own."""
        return [Team([member], self.classes) for member in self.members]


def fresh(make_network: Callable[[], nn.Module], seed: int) -> nn.Module:
    """An untrained network, made under a seed of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make_network()


def taught(
    network: nn.Module,
    augmenter: LieAugmenter | None,
    data: tuple[Batch, Tensor] | Stream,
    **options: Any,
) -> nn.Module:
    """The network after training, to be asked and not to be trained further; options of `fit`."""
    fit(network, augmenter, data, **options)
    return network.requires_grad_(False)


def halves(
    train: tuple[Batch, Tensor] | Stream, most: int, seed: int
) -> list[tuple[Batch, Tensor]] | list[Stream]:
    """Two random parts of the data that share no sample, nor a copy of one.

    Of a stream each has about `most` samples at most.
    """
    if not isinstance(train, Stream):
        x, y = train
        parts = two_parts(first_alike(x), lambda n: math.ceil(n / 2), seed)
        return [(_at(x, half), y[half]) for half in parts]
    largest = np.uint64(min(1.0, 2 * most / train.count) * (2**63 - 1))

    def of(side: int) -> Stream:
        return train.where(
            lambda keys: (keys & np.uint64(1) == side) & (keys >> np.uint64(1) <= largest), seed
        )

    return [of(0), of(1)]


def some(data: tuple[Batch, Tensor] | Stream, most: int, seed: int) -> tuple[Batch, Tensor]:
    """The data, or as many of them drawn at random."""
    if isinstance(data, Stream):
        reservoir = Reservoir(most, seed=seed)
        for piece in data.pieces():
            reservoir.add(*piece)
        return reservoir.settle()
    x, y = data
    if len(y) <= most:
        return data
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:most]
    return _at(x, rows), y[rows]


def searched(train: tuple[Batch, Tensor] | Stream, seed: int) -> Batch:
    """Inputs on which generators are ordered."""
    return some(train, SEARCHED, seed)[0] if isinstance(train, Stream) else train[0]


def sample_count(data: tuple[Batch, Tensor] | Stream) -> int:
    """Of arrays or of a stream."""
    return data.count if isinstance(data, Stream) else len(data[1])


def _at(x: Batch, rows: Tensor) -> Batch:
    return map_tensors(lambda t: t[rows], x)


def sent(x: Batch, most: int, device: torch.device) -> Batch:
    """The first samples, as many at most, on a device."""
    n = min(most, batch_size(x))
    return map_tensors(lambda t: t[:n].to(device), x)
