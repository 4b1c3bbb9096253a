"""The symmetry that a trained predictor has (LieGG, Moskalev et al. 2022).

The Lie derivative of a predictor is linear in the generator. Its mean square is a quadratic form on
generators, and those on which it vanishes are the predictor's symmetry: an eigenvalue problem, with
nothing to train.

LieGG compares generators of one Frobenius norm. Here they are compared at one displacement of the
samples: otherwise those that touch only the small features come first, as momenta do before the
rotation in two-body orbits, and those that move nothing before all.

The derivative of a trained predictor is wrong by some amount everywhere, so that the form of one
predictor vanishes nowhere. That of two, trained on different samples, does: their errors are
independent, and their product has no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.analysis.equivariance import lie_derivatives
from lieaugmenter.lie.units import in_spreads
from lieaugmenter.nets.mode import evaluating


@dataclass(frozen=True)
class Polarization:
    """Generators in the order in which a predictor respects them.

    Attributes
    ----------
    spectrum
        E‖J_Ψ(x)·(Lx) - LΨ(x)‖² / E‖Lx‖² of each generator L, ascending and in float64: LieGG's
        σ²/N, for generators that move the samples by a mean square of 1. It is 0 for a symmetry.
        Of two predictors it is the mean product of their residuals, which may be negative: the
        nearest to 0 is the first.
    generators
        (m, d, d), combinations of norm 1 of directions that are orthonormal, in units of the spread
        where one is given. What they do to the samples is orthogonal; compare it with
        `displacement_cosines`.
    idle
        (k, d, d), orthonormal in the same units: directions that move no sample. Along them a
        predictor's derivative says nothing, so they are kept out of the spectrum, and a generator
        is known only up to adding them.
    """

    spectrum: Float[Tensor, " m"]
    generators: Float[Tensor, "m d d"]
    idle: Float[Tensor, "k d d"]

    @property
    def variance(self) -> float:
        """The symmetry variance: the least of the spectrum."""
        return float(self.spectrum[0])

    def span(self, n: int) -> Float[Tensor, "n d d"]:
        """The n generators that the predictor respects best."""
        return self.generators[:n]


@torch.no_grad()
def polarize(
    model: Callable[[Batch], Tensor],
    x: Batch,
    *,
    action: Action,
    output: Action,
    other: Callable[[Batch], Tensor] | None = None,
    candidates: Float[Tensor, "n d d"] | None = None,
    spread: Float[Tensor, " space"] | None = None,
    chunk: int = 1024,
    tolerance: float = 1e-5,
) -> Polarization:
    """Order all generators by how well a predictor respects them.

    Parameters
    ----------
    model
        Ψ, differentiable; asked in evaluation mode.
    x
        Samples; or an iterator over batches of them, for data that do not fit into memory. It is
        read once.
    action, output
        How generators act on inputs and on outputs.
    other
        A predictor of the same task, trained on other samples. What either learned wrong is then
        independent, and averages out of the product of their residuals: along a symmetry the
        spectrum is about 0, not the error of a derivative.
    candidates
        Matrices that span the generators to look among; all that the action allows unless given.
    spread
        The unit of displacements along each coordinate, `Action.spread`; one for all unless given.
    chunk
        Samples at once. Memory does not grow with the number of samples.
    tolerance
        A direction is idle when its root mean square displacement is up to this fraction of the
        largest.

    Examples
    --------
    Lengths do not change when the plane turns:

    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> def length(x):
    ...     return x.norm(dim=-1, keepdim=True)
    >>> x = torch.randn(50, 2, dtype=torch.float64)
    >>> found = polarize(length, x, action=VectorAction(2), output=InvariantAction())
    >>> found.variance < 1e-12, bool(torch.allclose(found.span(1), -found.span(1).mT))
    (True, True)
    """
    pieces = x if isinstance(x, Iterator) else _cut(x, chunk)
    first = next(pieces, None)
    if first is None:
        raise ValueError("there are no samples to look for a symmetry on")
    reference = tensors_of(first)[0]
    candidates = entries(action.mask) if candidates is None else candidates
    directions = _directions(candidates, spread).to(reference)
    defects = reference.new_zeros(len(directions), len(directions), dtype=torch.float64)
    displacements = torch.zeros_like(defects)
    n = 0
    for piece in chain([first], pieces):
        n += batch_size(piece)
        moved = torch.stack([displacement(e, piece, action, spread) for e in directions])
        displacements += _gram(moved, moved)
        with evaluating(model, other):
            residuals = [
                lie_derivatives(one, piece, directions, action=action, output=output)
                for one in ([model] if other is None else [model, other])
            ]
        defects += _gram(residuals[0], residuals[-1])
    found = ordered(directions, defects / n, displacements / n, tolerance=tolerance)
    if other is not None:
        return found
    # Of one predictor nothing is below zero but rounding.
    return replace(found, spectrum=found.spectrum.clamp_min(0.0).sort().values)


def ordered(
    directions: Float[Tensor, "n d d"],
    defects: Float[Tensor, "n n"],
    displacements: Float[Tensor, "n n"],
    *,
    tolerance: float = 1e-5,
) -> Polarization:
    """Generators in the order of a quadratic form, compared at one displacement of the samples.

    Parameters
    ----------
    directions
        What the forms are on.
    defects, displacements
        Mean products of what moving along two of them changes, and of how far that moves samples.
    tolerance
        As of `polarize`.
    """
    if not bool((defects + displacements).isfinite().all()):
        raise ValueError("the samples, or what the predictor makes of them, are not all finite")
    sizes, axes = torch.linalg.eigh(displacements)
    moves = sizes > tolerance**2 * sizes[-1]
    if not bool(moves.any()):
        raise ValueError("no candidate moves any sample: there is no symmetry to look for")
    # In these coordinates every generator of length 1 moves the samples by a mean square of 1.
    whitening = axes[:, moves] / sizes[moves].sqrt()
    spectrum, turned = torch.linalg.eigh(whitening.mT @ defects @ whitening)
    # Two predictors that say the opposite agree on a symmetry as little as two that say the same.
    order = spectrum.abs().argsort(stable=True)
    found = whitening @ turned[:, order]

    def combined(columns: Tensor) -> Tensor:
        return torch.einsum("nm,nij->mij", columns.to(directions), directions)

    generators, idle = combined(found / found.norm(dim=0)), combined(axes[:, ~moves])
    return Polarization(spectrum[order], generators, idle)


@torch.no_grad()
def displacement_cosines(
    a: Float[Tensor, "m d d"], b: Float[Tensor, "n d d"], x: Batch, *, action: Action
) -> Float[Tensor, " k"]:
    """Cosines of the principal angles between what two spans of generators do to the samples.

    Largest first; all 1 when they move the samples alike, whatever they would do elsewhere. Entries
    of a generator count as the features do that they act on.
    """
    reference = tensors_of(x)[0]

    def displacements(basis: Tensor) -> Tensor:
        moved = [action.moving(action.differential(e, x)) for e in basis.to(reference)]
        return _orthonormal(torch.stack(moved).flatten(1))

    return torch.linalg.svdvals(displacements(a) @ displacements(b).mT).clamp(max=1.0)


def displacement(
    generator: Float[Tensor, "d d"],
    x: Batch,
    action: Action,
    spread: Float[Tensor, " space"] | None = None,
) -> Float[Tensor, "batch features"]:
    """How far a generator moves samples, in units of the spread of each coordinate if given."""
    velocity = action.differential(generator, x)
    if spread is not None:
        velocity = action.in_spreads(velocity, spread)
    return action.moving(velocity)


def _cut(x: Batch, chunk: int) -> Iterator[Batch]:
    """Samples a few at a time."""
    for start in range(0, batch_size(x), chunk):
        yield map_tensors(lambda t, at=start: t[at : at + chunk], x)


def entries(mask: Float[Tensor, "d d"]) -> Float[Tensor, "n d d"]:
    """One elementary matrix for each entry of the mask."""
    return torch.diag(mask.flatten())[mask.flatten() != 0].unflatten(1, mask.shape)


def _directions(
    candidates: Float[Tensor, "n d d"], spread: Float[Tensor, " space"] | None
) -> Float[Tensor, "r d d"]:
    """A basis of the candidates; in units of the spread, if given, it is orthonormal."""
    shape = candidates.shape[1:]
    if spread is None:
        return _orthonormal(candidates.flatten(1)).unflatten(1, shape)
    spread = spread.to(candidates)
    relative = in_spreads(candidates, spread).flatten(1)
    # Each of one size: in other units some would be lost as rounding.
    relative = relative / relative.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return in_spreads(_orthonormal(relative).unflatten(1, shape), 1 / spread)


def _orthonormal(rows: Float[Tensor, "n k"]) -> Float[Tensor, "r k"]:
    """An orthonormal basis of the span, in double precision; dependent rows count once."""
    _, sizes, directions = torch.linalg.svd(rows.double(), full_matrices=False)
    return directions[sizes > 1e-6 * sizes.max()]


def _gram(
    first: Float[Tensor, "n batch k"], second: Float[Tensor, "n batch k"]
) -> Float[Tensor, "n n"]:
    """Inner products, summed over the batch in double precision, the same both ways round."""
    rows, columns = (vectors.flatten(1).double() for vectors in (first, second))
    products = rows @ columns.mT
    return (products + products.mT) / 2
