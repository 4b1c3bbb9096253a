"""Which motions lead from samples to samples, and which to where there are none.

Samples may fulfil equations: momenta lie on their mass shells, beams along an axis. A motion that
breaks one of them leads off the data, where no label speaks for it or against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import InvariantAction, VectorAction
from lieaugmenter.analysis.equivariance import lie_derivative
from lieaugmenter.analysis.polarization import polarize


@dataclass(frozen=True, eq=False)
class Coverage:
    """The generators that keep all equations that the samples fulfil.

    Attributes
    ----------
    equations
        How many independent equations were found.
    generators
        (c, d, d), of Frobenius norm 1: they lead from samples to where samples may be.
    leaving
        Maps a generator to how far it leads off: the root mean square by which it breaks the
        equations, relative to that by which it moves the samples; 0 if it keeps all of them.
    """

    equations: int
    generators: Float[Tensor, "c d d"]
    leaving: Callable[[Float[Tensor, "d d"]], float]


@torch.no_grad()
def coverage(x: Float[Tensor, "n vectors d"], tolerance: float = 1e-5) -> Coverage:
    """Find the equations of the samples and the generators that keep them.

    Equations are looked for up to the second degree within each vector, and of the first degree
    across all vectors of a sample. What they do not say, such as how far the data reach, is not
    seen.

    Parameters
    ----------
    x
        Samples, stacks of vectors that move alike: more of them than there are monomials.
    tolerance
        An expression of the monomials vanishes if its root mean square is up to this fraction of
        the largest; a generator keeps the equations if it breaks them by up to this fraction of
        how far it moves the samples.

    Examples
    --------
    Points of a circle, which only the turn keeps:

    >>> angle = torch.linspace(0, 6, 50, dtype=torch.float64)
    >>> found = coverage(torch.stack([angle.cos(), angle.sin()], -1).unsqueeze(1))
    >>> found.equations, found.generators.shape
    (1, torch.Size([1, 2, 2]))
    >>> found.leaving(torch.eye(2)) > 1
    True
    """
    x = x.double()
    across = _vanishing(_first_degree(x), tolerance)
    within = [_vanishing(_second_degree(x[:, i]), tolerance) for i in range(x.shape[1])]

    def values(samples: Tensor) -> Float[Tensor, "n equations"]:
        found = [_first_degree(samples) @ across]
        found += [_second_degree(samples[:, i]) @ each for i, each in enumerate(within)]
        return torch.cat(found, dim=1)

    action, still = VectorAction(x.shape[-1]), InvariantAction()
    ordered = polarize(values, x, action=action, output=still)
    kept = ordered.spectrum <= tolerance**2

    def leaving(generator: Float[Tensor, "d d"]) -> float:
        generator = generator.to(x)
        broken = lie_derivative(values, x, generator, action=action, output=still)
        moved = action.differential(generator, x)
        return float((broken.square().sum() / moved.square().sum()).sqrt())

    return Coverage(values(x[:1]).shape[1], ordered.generators[kept], leaving)


def _first_degree(x: Float[Tensor, "n vectors d"]) -> Float[Tensor, "n m"]:
    return torch.cat([torch.ones_like(x[:, 0, :1]), x.flatten(1)], dim=1)


def _second_degree(x: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
    rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
    return torch.cat([torch.ones_like(x[:, :1]), x, x[:, rows] * x[:, columns]], dim=1)


def _vanishing(monomials: Float[Tensor, "n m"], tolerance: float) -> Float[Tensor, "m equations"]:
    """Orthonormal coefficients of all expressions that vanish on every sample."""
    _, sizes, directions = torch.linalg.svd(monomials, full_matrices=False)
    return directions[sizes <= tolerance * sizes[0]].mT
