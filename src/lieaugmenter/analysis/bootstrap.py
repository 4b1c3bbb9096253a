"""How much a mean over samples would differ with other samples: the bootstrap, in one place."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

RESAMPLES = 400
# One-sided.
CONFIDENCE = 0.95
_MOST_WEIGHTS = 10**7
# Of fewer samples the bounds mean nothing.
LEAST_SAMPLES = 20


def resample(n: int, seed: int) -> Float[Tensor, "r n"]:
    """How much each of n samples weighs in each resample; a product with it makes all their means.

    Parameters
    ----------
    n
        Number of samples.
    seed
        Of the draws.

    Examples
    --------
    >>> weights = resample(10, seed=0)
    >>> weights.shape, bool(torch.allclose(weights.sum(1), torch.ones(400, dtype=weights.dtype)))
    (torch.Size([400, 10]), True)
    """
    return torch.cat(list(resample_in_parts(n, seed)))


def resample_in_parts(n: int, seed: int) -> Iterator[Float[Tensor, "r n"]]:
    """`resample` a few rows at a time, for so many samples that all rows would not fit."""
    rng = torch.Generator().manual_seed(seed)
    at_once = min(max(_MOST_WEIGHTS // n, 1), RESAMPLES)
    for start in range(0, RESAMPLES, at_once):
        drawn = torch.randint(n, (min(at_once, RESAMPLES - start), n), generator=rng)
        counts = torch.zeros(drawn.shape, dtype=torch.float64)
        yield counts.scatter_add_(1, drawn, torch.ones_like(counts)) / n


def bounds(values: Float[Tensor, "r *x"], confidence: float = CONFIDENCE) -> tuple[Tensor, Tensor]:
    """The lower and the upper bound of what was made from resamples, each with this confidence.

    >>> [round(float(bound), 6) for bound in bounds(torch.arange(101.0))]
    [5.0, 95.0]
    """
    low, high = values.double().quantile(
        torch.tensor([1 - confidence, confidence], dtype=torch.float64), dim=0
    )
    return low, high


def signed_root(values: Float[Tensor, "*r"]) -> Float[Tensor, "*r"]:
    """√v, and -√(-v) of estimates that came out negative.

    >>> signed_root(torch.tensor([4.0, -4.0]))
    tensor([ 2., -2.])
    """
    return values.sign() * values.abs().sqrt()
