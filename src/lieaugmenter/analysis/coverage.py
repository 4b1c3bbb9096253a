"""Which motions lead from samples to samples, and which to where there are none.

Samples may fulfil equations: momenta lie on their mass shells and beams along an axis, features may
be redundant, and of several that stand for a class one is 1 and the others are 0. A motion that
breaks one of them leads off the data, where no label speaks for it or against it, and where a
predictor says whatever it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import ImageAction, InvariantAction
from lieaugmenter.actions.base import Action, Batch, tensors_of
from lieaugmenter.analysis.equivariance import lie_derivative
from lieaugmenter.analysis.polarization import displacement, entries, polarize

# Numbers of one vector up to which equations of the second degree are looked for.
_MOST_SQUARED = 32
# How many times worse than it vanishes an equation may be kept.
_KEPT = 10
TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Coverage:
    """The generators that keep all equations that the samples fulfil.

    Attributes
    ----------
    equations
        How many independent equations were found.
    generators
        (c, d, d), of norm 1 in units of the spread: they lead from samples to where samples may be.
    idle
        (k, d, d), orthonormal in the same units: they move no sample.
    n_leaving
        How many independent directions break an equation.
    leaving
        Maps a generator to how far it leads off: the root mean square by which it breaks the
        equations, relative to that by which it moves the samples; 0 if it keeps all of them.
    """

    equations: int
    generators: Float[Tensor, "c d d"]
    idle: Float[Tensor, "k d d"]
    n_leaving: int
    leaving: Callable[[Float[Tensor, "d d"]], float]


@torch.no_grad()
def coverage(
    x: Batch,
    *,
    action: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    tolerance: float = TOLERANCE,
) -> Coverage:
    """Find the equations of the samples and the generators that keep them.

    Equations are looked for up to the second degree within each vector, and of the first degree
    across all vectors of a sample. What they do not say, such as how far the data reach, is not
    seen. Those of pixels are not looked for.

    Parameters
    ----------
    x
        Samples: more of them than there are monomials, or these are left out.
    action
        How generators act.
    candidates
        Matrices that span the generators to look among; all that the action allows unless given.
    tolerance
        An expression of the monomials vanishes if its root mean square is up to this fraction of
        the largest; a generator keeps the equations if it breaks them by up to ten times this
        fraction of how far it moves the samples.

    Examples
    --------
    Points of a circle, which only the turn keeps:

    >>> from lieaugmenter.actions import VectorAction
    >>> angle = torch.linspace(0, 6, 50, dtype=torch.float64)
    >>> circle = torch.stack([angle.cos(), angle.sin()], -1)
    >>> found = coverage(circle, action=VectorAction(2))
    >>> found.equations, found.generators.shape, found.n_leaving
    (1, torch.Size([1, 2, 2]), 3)
    >>> found.leaving(torch.eye(2)) > 1
    True
    """
    equations, still = equations_of(x, action, tolerance), InvariantAction()
    candidates = entries(action.mask) if candidates is None else candidates
    # The equations are those of features of deviation 1, and so are displacements.
    spread = action.spread(x)
    ordered = polarize(
        equations, x, action=action, output=still, candidates=candidates, spread=spread
    )
    kept = ordered.spectrum <= (_KEPT * tolerance) ** 2

    def leaving(generator: Float[Tensor, "d d"]) -> float:
        generator = generator.to(tensors_of(x)[0])
        broken = lie_derivative(equations, x, generator, action=action, output=still)
        moved = displacement(generator, x, action, spread)
        return float((broken.square().sum() / moved.square().sum()).sqrt())

    return Coverage(
        equations(x).shape[1],
        ordered.generators[kept],
        ordered.idle,
        int((~kept).sum()),
        leaving,
    )


def equations_of(
    x: Batch, action: Action, tolerance: float = TOLERANCE
) -> Callable[[Batch], Float[Tensor, "n equations"]]:
    """Expressions that vanish on all samples, as a function of samples: see `coverage`.

    Parameters
    ----------
    x, action, tolerance
        As for `coverage`.

    Returns
    -------
    function
        From samples to the values of the expressions, (n, equations), with coefficients of length 1
        for features of mean 0 and deviation 1.
    """
    places = action.moving(x).double()
    # In other units monomials of features far from zero would be nearly the same.
    centre, spread = places.mean(0), places.std(0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    of = places.shape[1]
    vectors = [slice(0, of)] if not isinstance(x, Tensor) or x.ndim < 3 else _cut(of, x.shape[-1])
    families = [(_first_degree, slice(0, of))]
    families += [
        (_second_degree, part) for part in vectors if part.stop - part.start <= _MOST_SQUARED
    ]
    found = []
    for monomials, part in [] if isinstance(action, ImageAction) else families:
        values = monomials(((places - centre) / spread)[:, part])
        if len(values) > values.shape[1]:
            found.append((monomials, part, _vanishing(values, tolerance)))

    def equations(samples: Batch) -> Tensor:
        own = (action.moving(samples).double() - centre) / spread
        parts = [monomials(own[:, part]) @ vanishing for monomials, part, vanishing in found]
        return torch.cat([own[:, :0], *parts], dim=1)

    return equations


def _cut(of: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, of, size)]


def _first_degree(x: Float[Tensor, "n k"]) -> Float[Tensor, "n m"]:
    return torch.cat([torch.ones_like(x[:, :1]), x], dim=1)


def _second_degree(x: Float[Tensor, "n k"]) -> Float[Tensor, "n m"]:
    rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
    return torch.cat([_first_degree(x), x[:, rows] * x[:, columns]], dim=1)


def _vanishing(monomials: Float[Tensor, "n m"], tolerance: float) -> Float[Tensor, "m equations"]:
    """Orthonormal coefficients of all expressions that vanish on every sample."""
    _, sizes, directions = torch.linalg.svd(monomials, full_matrices=False)
    return directions[sizes <= tolerance * sizes[0]].mT
