"""Coordinates of different units: how widely samples are spread along each of them.

A generator mixes coordinates, and how large its entries are depends on their units. Measured in
units of the spread of each coordinate, a displacement of 1 is as far along every one of them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# A coordinate that varies by less, relative to its size, is constant.
_ROUNDING = 1e-6


def spread_of(vectors: Float[Tensor, "n *places d"]) -> Float[Tensor, " d"]:
    """The standard deviation of each coordinate over samples, 1 where it is constant.

    Of several vectors in a sample, the root mean square of that of each: how far they lie from each
    other is no spread.

    >>> spread_of(torch.tensor([[0.0, 5.0], [200.0, 5.0]]))
    tensor([100.,   1.])
    """
    rows = vectors.reshape(len(vectors), -1, vectors.shape[-1]).double()
    spread = rows.std(0, correction=0).square().mean(0).sqrt()
    constant = spread <= _ROUNDING * rows.square().mean((0, 1)).sqrt()
    return torch.where(constant, torch.ones_like(spread), spread).to(vectors)


def in_spreads(
    generators: Float[Tensor, "*b d d"], spread: Float[Tensor, " n"]
) -> Float[Tensor, "*b d d"]:
    """The same generators where each coordinate is measured in units of its spread.

    Homogeneous coordinates have one more than the space, which keeps its unit.

    >>> shear = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    >>> in_spreads(shear, torch.tensor([1.0, 100.0]))[0, 1].item()
    100.0
    """
    units = torch.cat([spread, spread.new_ones(generators.shape[-1] - len(spread))]).to(generators)
    return generators * (units / units[:, None])
