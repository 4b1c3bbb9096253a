"""How many generators a task has: a table over dimensions, from two predictors.

Two predictors that were trained on different samples of a task make independent errors. The mean
product of their Lie derivatives along a direction is therefore an estimate without bias of how far
the task is from being symmetric along it, in which the errors of the derivatives, which hide the
symmetry of a single predictor, average out (see `polarization`). Directions are ordered on some
samples, and judged on others.

What a derivative is compared with: that of moving each sample as far in a direction of its own,
drawn from the displacements of all samples. Unlike a mean over generators this does not shrink when
most generators are symmetries. How far is measured in units of the spread of each coordinate
(`Action.spread`): in metres everything would seem symmetric along a coordinate of kilometres.

Errors are independent of a direction only until it is chosen by them: the best of many directions
is one along which the errors of these two happen to cancel. So the mean of both predictors, in
which they do not, must not change along it either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, map_tensors, tensors_of
from lieaugmenter.analysis.bench import MOST_ROWS, Bench, Dimensions, Ordering
from lieaugmenter.analysis.equivariance import lie_derivatives, push_forward
from lieaugmenter.analysis.polarization import Polarization, polarize
from lieaugmenter.lie.units import in_spreads

_RANDOM_DIRECTIONS = 16


def dimensions(
    first: Callable[[Batch], Tensor],
    second: Callable[[Batch], Tensor],
    search: Batch,
    judge: Batch,
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    most: int = MOST_ROWS,
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
    candidates
        Matrices that span the generators to look among; all that the action allows unless given.
    most
        The largest dimension to look at.
    seed
        Of the bootstrap and of the random directions.

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
    bench = DerivativeBench(
        first, second, judge, search=search, action=action, output=output, seed=seed
    )
    return bench.dimensions(candidates=candidates, most=most)


class DerivativeBench(Bench):
    """Judges spans of generators by the Lie derivatives of two predictors.

    Parameters
    ----------
    first, second, judge, action, output, seed
        As of `dimensions`.
    search
        As of `dimensions`; the samples on which generators are judged unless given.
    """

    def __init__(
        self,
        first: Callable[[Batch], Tensor],
        second: Callable[[Batch], Tensor],
        judge: Batch,
        *,
        action: Action,
        output: Action,
        search: Batch | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(judge, action=action, output=output)
        self.models = (first, second)
        self.searched = judge if search is None else search
        self.weigh_by(self._elsewhere(torch.Generator().manual_seed(seed)), seed)

    def order(self, candidates: Float[Tensor, "n d d"] | None = None) -> Ordering:
        first, second = self.models
        together = self._polarized(first, second, candidates)
        one, two = (self._polarized(model, None, candidates) for model in self.models)
        return Ordering(together, (one.generators, two.generators))

    def _polarized(
        self,
        model: Callable[[Batch], Tensor],
        other: Callable[[Batch], Tensor] | None,
        candidates: Float[Tensor, "n d d"] | None,
    ) -> Polarization:
        return polarize(
            model,
            self.searched,
            action=self.action,
            output=self.output,
            other=other,
            candidates=candidates,
            spread=self.spread,
            chunk=self.chunk,
        )

    def forms(
        self, units: Float[Tensor, "m d d"]
    ) -> Iterator[tuple[Float[Tensor, "n k k"], Float[Tensor, "n k k"]]]:
        """Inner products of the residuals of one predictor with those of the other, and of those
        of their mean with themselves.
        """

        def residuals(model: Callable[[Batch], Tensor], piece: Batch) -> Float[Tensor, "b m k"]:
            along = lie_derivatives(model, piece, units, action=self.action, output=self.output)
            return along.transpose(0, 1).double()

        crossed, together = [], []
        for piece in self.pieces:
            one, two = (residuals(model, piece) for model in self.models)
            product, mean = one @ two.mT, (one + two) / 2
            crossed.append((product + product.mT).cpu() / 2)
            together.append((mean @ mean.mT).cpu())
        products, means = torch.cat(crossed), torch.cat(together)
        for k in range(1, len(units) + 1):
            yield products[:, :k, :k], means[:, :k, :k]

    def _elsewhere(self, rng: torch.Generator) -> Float[Tensor, " n"]:
        """For each sample the product of both derivatives along random directions, on average.

        In each of them samples move, in the mean square, by 1.
        """
        reference = tensors_of(self.samples)[0]
        total = torch.zeros(len(reference), dtype=torch.float64)
        mask = self.action.mask
        for _ in range(_RANDOM_DIRECTIONS):
            random = (torch.randn(mask.shape, generator=rng) * mask).to(reference)
            # As likely along every coordinate, in units of its spread.
            random = in_spreads(random, 1 / self.spread)
            velocities = [self.action.differential(random, piece) for piece in self.pieces]
            lengths = [self._lengths(velocity) for velocity in velocities]
            size = float(torch.cat(lengths).double().square().mean().sqrt())
            products = []
            for piece, velocity in zip(self.pieces, velocities, strict=True):
                mixed = self._mixed(velocity, size, rng)
                one, two = (push_forward(model, piece, mixed)[1] for model in self.models)
                products.append((one.flatten(1).double() * two.flatten(1).double()).sum(1))
            total += torch.cat(products).detach().cpu() / _RANDOM_DIRECTIONS
        return total

    def _lengths(self, velocity: Batch) -> Float[Tensor, " b"]:
        """How far each sample moves, in units of the spread of each coordinate."""
        moved = self.action.in_spreads(velocity, self.spread)
        squares = [t.flatten(1).square().sum(1) for t in tensors_of(moved) if t.is_floating_point()]
        return torch.stack(squares).sum(0).sqrt()

    def _mixed(self, velocity: Batch, size: float, rng: torch.Generator) -> Batch:
        """Each sample moved as far as before, in units of `size`, as a mixture of all others."""
        lengths = self._lengths(velocity)
        n = len(lengths)
        weights = torch.randn(n, n, generator=rng).to(lengths)
        mixture = map_tensors(
            lambda t: (weights @ t.flatten(1)).view_as(t) if t.is_floating_point() else t, velocity
        )
        factors = lengths / self._lengths(mixture).clamp_min(1e-30) / max(size, 1e-30)
        return map_tensors(
            lambda t: t * factors.view(-1, *[1] * (t.ndim - 1)) if t.is_floating_point() else t,
            mixture,
        )
