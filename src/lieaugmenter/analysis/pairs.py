"""What a change is compared with: that between two samples which are as far apart as one moved."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def partners(
    distances: Float[Tensor, "n m"], path: Float[Tensor, " n"]
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """For each sample another one about as far away as it moved, and how much its change counts.

    No other may be as near: what changes over a longer way is more, by its square.

    Parameters
    ----------
    distances
        Between samples and those to choose from; infinite from a sample to itself.
    path
        How far each sample moved.

    Examples
    --------
    >>> import torch
    >>> partners(torch.tensor([[torch.inf, 2.0, 9.0]]), torch.tensor([1.0]))
    (tensor([1]), tensor([0.2500]))
    """
    partner = (distances - path.unsqueeze(1)).abs().argmin(1)
    apart = distances.gather(1, partner.unsqueeze(1)).squeeze(1)
    return partner, (path / apart.clamp_min(1e-30)).clamp(max=1.0).square()
