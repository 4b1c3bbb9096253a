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

from lieaugmenter.actions import ImageAction, InvariantAction, VectorAction
from lieaugmenter.actions.base import Action, Batch, tensors_of
from lieaugmenter.analysis.equivariance import lie_derivative
from lieaugmenter.analysis.polarization import polarize
from lieaugmenter.lie.brackets import orthonormal


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


@dataclass(frozen=True, eq=False)
class Hull:
    """The least flat space that holds all samples, and the generators that do not lead out of it.

    Attributes
    ----------
    dimension, of
        Of that space, and of the space of all numbers that the action can move.
    generators
        (k, d, d), orthonormal: those that keep it.
    leaving
        How many independent directions lead out of it.
    """

    dimension: int
    of: int
    generators: Float[Tensor, "k d d"]
    leaving: int


@torch.no_grad()
def within_hull(
    x: Batch, candidates: Float[Tensor, "n d d"], *, action: Action, tolerance: float = 1e-4
) -> Hull:
    """Of some generators those that keep the first-degree equations of the samples.

    Redundant or constant features, a fixed centre of mass, momenta that are conserved: a motion
    that breaks these leads to where a predictor has never been, and says whatever it likes.

    Parameters
    ----------
    x
        Samples; more than there are numbers in one.
    candidates
        Matrices that span the generators to look among.
    action
        How they act.
    tolerance
        Samples do not extend in a direction in which they spread by up to this fraction of their
        largest spread.

    Examples
    --------
    Two features of which the second is twice the first; it is only their scaling that keeps it,
    and what moves no sample:

    >>> x = torch.randn(50, 1, dtype=torch.float64) * torch.tensor([1.0, 2.0])
    >>> found = within_hull(x, torch.eye(4).view(4, 2, 2), action=VectorAction(2))
    >>> found.dimension, found.of, len(found.generators), found.leaving
    (1, 2, 3, 1)
    """
    places = action.moving(x).double()
    n, of = places.shape
    everything = Hull(of, of, candidates, 0)
    if isinstance(action, ImageAction) or n <= of:
        return everything
    _, sizes, axes = torch.linalg.svd(places - places.mean(0), full_matrices=False)
    across = axes[sizes <= tolerance * sizes[0]]
    if not len(across):
        return everything
    directions = orthonormal(candidates)
    moved = [
        action.moving(action.differential(e, x)).double() for e in directions.to(tensors_of(x)[0])
    ]
    broken = torch.stack([(displacement @ across.mT).flatten() for displacement in moved])
    largest = max(float(displacement.norm()) for displacement in moved)
    strengths, combinations = torch.linalg.eigh((broken @ broken.mT).cpu())
    kept = combinations[:, strengths <= (tolerance * largest) ** 2]
    generators = torch.einsum("nm,nij->mij", kept, directions).to(candidates)
    return Hull(of - len(across), of, generators, len(directions) - len(generators))


def _first_degree(x: Float[Tensor, "n vectors d"]) -> Float[Tensor, "n m"]:
    return torch.cat([torch.ones_like(x[:, 0, :1]), x.flatten(1)], dim=1)


def _second_degree(x: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
    rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
    return torch.cat([torch.ones_like(x[:, :1]), x, x[:, rows] * x[:, columns]], dim=1)


def _vanishing(monomials: Float[Tensor, "n m"], tolerance: float) -> Float[Tensor, "m equations"]:
    """Orthonormal coefficients of all expressions that vanish on every sample."""
    _, sizes, directions = torch.linalg.svd(monomials, full_matrices=False)
    return directions[sizes <= tolerance * sizes[0]].mT
