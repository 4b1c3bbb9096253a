"""Samples with the same input, and random parts of data that never share one.

What a network has learned by heart it predicts well: a copy that is held out would say that noise
was understood. Copies are told by their inputs alone, because two networks that were shown the
same places err alike between them, whatever was measured there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lieaugmenter.actions.base import Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.learning.streams import hashes

# Numbers that are looked at together.
_AT_ONCE = 2**22


def input_hashes(x: Batch) -> np.ndarray:
    """The hashes of inputs, (n,) of uint64: the same for copies only."""
    n = batch_size(x)
    row = sum(t[:1].numel() for t in tensors_of(x))
    rows = max(1, _AT_ONCE // max(row, 1))
    found = [np.empty(0, dtype=np.uint64)]
    for start in range(0, n, rows):
        # Zeros of both signs are one number.
        found.append(hashes(map_tensors(lambda t, at=start: t[at : at + rows] + 0, x)))
    return np.concatenate(found)


def first_alike(x: Batch) -> Int[Tensor, " n"]:
    """Of each sample the number of the first one that has the same input.

    >>> first_alike(torch.tensor([[1.0], [2.0], [1.0]])).tolist()
    [0, 1, 0]
    """
    _, first, group = np.unique(input_hashes(x), return_index=True, return_inverse=True)
    return torch.from_numpy(first[group])


def two_parts(
    alike: Int[Tensor, " n"], share: Callable[[int], int], seed: int
) -> tuple[Int[Tensor, " a"], Int[Tensor, " b"]]:
    """Rows of two random parts of samples, none of which has an input that the other has too.

    Parameters
    ----------
    alike
        As `first_alike` gives it.
    share
        How many of so many different inputs lie in the first part.
    seed
        Of the order.

    Examples
    --------
    >>> first, second = two_parts(torch.tensor([0, 1, 2, 0, 0, 1]), lambda n: 1, seed=0)
    >>> sorted(first.tolist()), sorted(second.tolist())
    ([2], [0, 1, 3, 4, 5])
    """
    n = len(alike)
    place = torch.empty(n, dtype=torch.long)
    place[torch.randperm(n, generator=torch.Generator().manual_seed(seed))] = torch.arange(n)
    # Copies take the place of the first of them. Without any this is the order drawn.
    places, rows = place[alike].sort(stable=True)
    different = places.unique()
    count = share(len(different))
    is_first = torch.isin(places, different[:count])
    return rows[is_first], rows[~is_first]
