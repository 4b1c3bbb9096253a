"""How many generators a task has: a table over dimensions, from two predictors.

Two predictors that were trained on different samples of a task make independent errors. The mean
product of their Lie derivatives along a direction is therefore an estimate without bias of how far
the task is from being symmetric along it, in which the errors of the derivatives, which hide the
symmetry of a single predictor, average out (see `polarization`). Directions are ordered on some
samples, and judged on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.analysis.equivariance import lie_derivative
from lieaugmenter.analysis.polarization import Polarization, polarize
from lieaugmenter.lie.brackets import closure_residual

# A span counts as a symmetry where its defect is surely below this fraction of that of an arbitrary
# direction.
DEFECT_BOUND = 0.1
_RESAMPLES = 400
_CONFIDENCE = 0.95
_AT_ONCE = 1024


@dataclass(frozen=True)
class Row:
    """The span of the best generators of one dimension.

    Attributes
    ----------
    dimension
        How many generators.
    defect
        Of the worst direction in the span, relative to an arbitrary direction that moves the
        samples as far: 0 for a symmetry, about 1 for no symmetry. The signed root of an estimate
        that may come out negative.
    lower, upper
        Its one-sided 95 % bootstrap bounds over samples.
    closure
        How far brackets leave the span.
    """

    dimension: int
    defect: float
    lower: float
    upper: float
    closure: float


@dataclass(frozen=True, eq=False)
class Dimensions:
    """A table over dimensions, and the generators that it speaks of.

    Attributes
    ----------
    rows
        For the dimensions 1, 2, … that were looked at.
    generators
        (m, d, d), the best first, as `polarize` gives them.
    idle
        Directions that move no sample and cannot be judged, (k, d, d).
    agree
        Whether the predictors surely have anything in common: without that, the task has not been
        learned, and the table means nothing.
    """

    rows: Sequence[Row]
    generators: Float[Tensor, "m d d"]
    idle: Float[Tensor, "k d d"]
    agree: bool = True

    def count(self, bound: float = DEFECT_BOUND) -> int:
        """The largest dimension whose span is surely below the bound, with all smaller ones.

        None where the predictors do not agree. A defect far below zero is no symmetry either: it
        says that their derivatives have opposite signs.
        """
        found = 0
        for row in self.rows if self.agree else ():
            if row.upper > bound or row.defect < -bound:
                break
            found = row.dimension
        return found

    def span(self, bound: float = DEFECT_BOUND) -> Float[Tensor, "c d d"]:
        """The generators that are counted."""
        return self.generators[: self.count(bound)]


def dimensions(
    first: Callable[[Batch], Tensor],
    second: Callable[[Batch], Tensor],
    search: Batch,
    judge: Batch,
    *,
    action: Action,
    output: Action,
    most: int | None = None,
    seed: int = 0,
) -> Dimensions:
    """Order generators by two predictors of one task, and judge the spans of the best of them.

    Parameters
    ----------
    first, second
        Predictors that were trained on different samples.
    search
        Samples on which generators are ordered; those of training will do.
    judge
        Samples on which they are judged, seen by neither.
    action, output
        How generators act.
    most
        The largest dimension to look at; all unless given.
    seed
        Of the bootstrap.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> x = torch.randn(400, 3, dtype=torch.float64)
    >>> def length(x):
    ...     return x.square().sum(-1, keepdim=True)
    >>> found = dimensions(
    ...     length, length, x[:200], x[200:], action=VectorAction(3), output=InvariantAction()
    ... )
    >>> found.count()
    3
    """
    ordered = polarize(first, search, action=action, output=output, other=second)
    products = _products(first, second, judge, ordered, action, output)
    most = products.shape[-1] if most is None else min(most, products.shape[-1])
    rng = torch.Generator().manual_seed(seed)
    n = len(products)
    # How often each sample is drawn: one matrix product makes all resampled means.
    drawn = torch.randint(n, (_RESAMPLES, n), generator=rng)
    weights = torch.zeros(_RESAMPLES + 1, n, dtype=products.dtype)
    weights.scatter_add_(1, torch.cat([drawn, drawn[:1]]), torch.ones_like(weights))
    # The samples as they are come last.
    weights[-1] = 1.0
    means = torch.einsum("rn,nij->rij", weights / n, products)
    scales = means.diagonal(dim1=1, dim2=2).mean(1)
    rows = []
    for k in range(1, most + 1):
        worst = torch.linalg.eigvalsh(means[:, :k, :k])[:, -1]
        defects = _signed_root(worst / scales)
        low, high = defects[:-1].quantile(
            torch.tensor([1 - _CONFIDENCE, _CONFIDENCE], dtype=defects.dtype)
        )
        closure = closure_residual(ordered.generators[:k])
        rows.append(Row(k, float(defects[-1]), float(low), float(high), closure))
    agree = float(scales[:-1].quantile(1 - _CONFIDENCE)) > 0
    return Dimensions(rows, ordered.generators, ordered.idle, agree)


def _products(
    first: Callable[[Batch], Tensor],
    second: Callable[[Batch], Tensor],
    x: Batch,
    ordered: Polarization,
    action: Action,
    output: Action,
) -> Float[Tensor, "n m m"]:
    """For each sample the inner products of both residuals along all pairs of generators.

    Generators are taken as long as makes them move the samples by a mean square of 1.
    """
    n = batch_size(x)
    pieces = [
        map_tensors(lambda t, at=start: t[at : at + _AT_ONCE], x) for start in range(0, n, _AT_ONCE)
    ]
    lengths = torch.stack([_displacement(g, pieces, action) for g in ordered.generators])
    generators = ordered.generators / lengths[:, None, None]

    def residuals(model: Callable[[Batch], Tensor], piece: Batch) -> Float[Tensor, "b m k"]:
        along = [lie_derivative(model, piece, g, action=action, output=output) for g in generators]
        return torch.stack(along, dim=1).double()

    found = []
    for piece in pieces:
        one, two = residuals(first, piece), residuals(second, piece)
        product = one @ two.mT
        found.append((product + product.mT) / 2)
    return torch.cat(found).detach().cpu()


def _displacement(
    generator: Float[Tensor, "d d"], pieces: Sequence[Batch], action: Action
) -> Float[Tensor, ""]:
    """Root mean square of how far a generator moves samples."""
    moved = [action.moving(action.differential(generator, piece)) for piece in pieces]
    return torch.cat(moved).square().sum(1).mean().sqrt()


def _signed_root(values: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
    """√v, and -√(-v) of negative values.

    >>> _signed_root(torch.tensor([4.0, -4.0]))
    tensor([ 2., -2.])
    """
    return values.sign() * values.abs().sqrt()
