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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.analysis.bootstrap import bounds, resample, signed_root
from lieaugmenter.analysis.equivariance import lie_derivative, push_forward
from lieaugmenter.analysis.polarization import displacement, polarize
from lieaugmenter.lie.brackets import closure_residual
from lieaugmenter.lie.units import in_spreads

# A span counts as a symmetry where its defect is surely below this.
DEFECT_BOUND = 0.1
# And may be one, worth trying, where it is surely below this.
POSSIBLE_BOUND = 0.3
# Brackets of symmetries are symmetries. A span whose brackets leave it by more is not the algebra,
# even if moving along it changes little.
CLOSURE_BOUND = 0.25
# By how much derivatives are worse known than predictions: the lower bounds of true symmetries were
# at most 1.95 times the root of the unexplained variation, those of approximate ones 3.88 and more
# (the zoo, seed 0).
_VISIBLE = 3.0
# However well they are known.
_NEVER_VISIBLE = 0.01
# Samples at once, and numbers of them: a derivative doubles what a network keeps in memory.
_AT_ONCE = 1024
_NUMBERS_AT_ONCE = 2**21
_RANDOM_DIRECTIONS = 16
_LARGEST = 10.0


@dataclass(frozen=True)
class Row:
    """The span of the best generators of one dimension.

    Attributes
    ----------
    dimension
        How many generators.
    defect
        Of the worst direction in the span: the derivative along it, relative to that of moving
        each sample as far in a random direction. 0 for a symmetry, about 1 for no symmetry. The
        signed root of an estimate that may come out negative.
    lower, upper
        Its one-sided 95 % bootstrap bounds over samples.
    closure
        How far brackets leave the span.
    together
        The upper bound of the defect by the mean of both predictors, what each got wrong included:
        never negative, and too large rather than too small.
    """

    dimension: int
    defect: float
    lower: float
    upper: float
    closure: float
    together: float

    def holds(self, visible: float | None = None) -> bool:
        """Whether the span surely is a symmetry.

        A defect that may be far below zero is none: the derivatives of both predictors may then
        have opposite signs. Nor is one that is small, but surely further from zero than `visible`:
        that one is seen.
        """
        small = self.lower >= -DEFECT_BOUND and max(self.upper, self.together) <= DEFECT_BOUND
        return small and self.may_hold(visible)

    def surely_beyond(self, other: Row) -> bool:
        """Whether its defect is surely further from zero than that of another span."""
        crosses = self.lower <= 0 <= self.upper
        least = 0.0 if crosses else min(abs(self.lower), abs(self.upper))
        return least > max(abs(other.lower), abs(other.upper))

    def may_hold(self, visible: float | None = None) -> bool:
        """Whether the span may be a symmetry, and is worth trying."""
        seen = math.inf if visible is None else visible
        return -min(POSSIBLE_BOUND, seen) <= self.upper <= POSSIBLE_BOUND and self.lower <= seen


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
    visible
        Defects that surely are above this cannot be put down to what the predictors have not
        learned: a symmetry that is broken by so little. See `visible_defect`; None where it is not
        known.
    equations, leaving
        How many equations all samples fulfil, and how many directions break one and were kept out
        of the table, because they lead to where there are no samples. See `coverage`.
    left_out
        How many other directions were not looked at.
    most
        No more generators than this are counted; None for any number.
    """

    rows: Sequence[Row]
    generators: Float[Tensor, "m d d"]
    idle: Float[Tensor, "k d d"]
    agree: bool = True
    visible: float | None = None
    equations: int = 0
    leaving: int = 0
    left_out: int = 0
    most: int | None = None

    def count(self) -> int:
        """The largest dimension whose span surely is a symmetry and closed under brackets.

        0 where there is none, or where the predictors do not agree.
        """
        return self._largest(Row.holds)

    def possible(self) -> int:
        """The largest dimension whose span may be a symmetry, and is closed under brackets."""
        return self._largest(Row.may_hold)

    def span(self) -> Float[Tensor, "c d d"]:
        """The generators that are counted."""
        return self.generators[: self.count()]

    def _largest(self, holds: Callable[[Row, float | None], bool]) -> int:
        found = 0
        for row in self.rows[: self.most] if self.agree else ():
            if not holds(row, self.visible):
                break
            if row.closure <= CLOSURE_BOUND:
                found = row.dimension
        return found


def visible_defect(quality: float) -> float:
    """The smallest defect that predictors of numbers which explain so much (R²) can tell from none.

    A derivative is known about as well as the predictions: up to the root of what they leave
    unexplained, noise included, and a factor.

    >>> round(visible_defect(0.9999), 4)
    0.03
    """
    return max(_NEVER_VISIBLE, _VISIBLE * math.sqrt(max(0.0, 1 - quality)))


def dimensions(
    first: Callable[[Batch], Tensor],
    second: Callable[[Batch], Tensor],
    search: Batch,
    judge: Batch,
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
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
    candidates
        Matrices that span the generators to look among; all that the action allows unless given.
    most
        The largest dimension to look at; all unless given.
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
    bench = Bench(first, second, judge, action=action, output=output, seed=seed)
    return bench.dimensions(search, candidates=candidates, most=most)


class Bench:
    """Judges spans of generators by two predictors, on samples that neither has seen.

    Parameters
    ----------
    first, second, judge, action, output, seed
        As of `dimensions`.

    Attributes
    ----------
    agree
        Whether the predictors surely have anything in common.
    action, output, samples
        What they are judged by.
    """

    def __init__(
        self,
        first: Callable[[Batch], Tensor],
        second: Callable[[Batch], Tensor],
        judge: Batch,
        *,
        action: Action,
        output: Action,
        seed: int = 0,
    ) -> None:
        self.models = (first, second)
        self.action, self.output, self.samples = action, output, judge
        self.spread = action.spread(judge)
        n = batch_size(judge)
        numbers = sum(t[:1].numel() for t in tensors_of(judge))
        self.chunk = min(_AT_ONCE, max(16, _NUMBERS_AT_ONCE // max(numbers, 1)))
        self.pieces = [
            map_tensors(lambda t, at=start: t[at : at + self.chunk], judge)
            for start in range(0, n, self.chunk)
        ]
        # The samples as they are come last.
        whole = torch.full((1, n), 1 / n, dtype=torch.float64)
        self.weights = torch.cat([resample(n, seed), whole])
        self.scales = self.weights @ self._elsewhere(torch.Generator().manual_seed(seed))
        self.agree = float(bounds(self.scales[:-1])[0]) > 0

    def dimensions(
        self,
        search: Batch,
        *,
        candidates: Float[Tensor, "n d d"] | None = None,
        most: int | None = None,
    ) -> Dimensions:
        """The table of the generators that some samples put first; as `dimensions`."""
        first, second = self.models
        ordered = polarize(
            first,
            search,
            action=self.action,
            output=self.output,
            other=second,
            candidates=candidates,
            spread=self.spread,
            chunk=self.chunk,
        )
        rows = self.rows(ordered.generators[:most])
        return Dimensions(rows, ordered.generators, ordered.idle, self.agree)

    def judge(self, generators: Float[Tensor, "c d d"]) -> Row:
        """The row of a span."""
        return self.rows(generators)[-1]

    def rows(self, generators: Float[Tensor, "m d d"]) -> list[Row]:
        """A row for the span of the first generator, of the first two, and so on."""
        crossed, together = (
            torch.einsum("rn,nij->rij", self.weights, products)
            for products in self._products(generators)
        )
        relative = in_spreads(generators, self.spread)
        rows = []
        for k in range(1, len(generators) + 1):
            defects = self._defects_of_worst(crossed[:, :k, :k])
            low, high = bounds(defects[:-1])
            highest = bounds(self._defects_of_worst(together[:, :k, :k])[:-1])[1]
            closure = closure_residual(relative[:k])
            rows.append(
                Row(k, float(defects[-1]), float(low), float(high), closure, float(highest))
            )
        return rows

    def _defects_of_worst(self, forms: Float[Tensor, "r k k"]) -> Float[Tensor, " r"]:
        """The defect of the worst direction of a span, by the mean products of every resample."""
        least, most = torch.linalg.eigvalsh(forms)[:, [0, -1]].unbind(1)
        # Where both predictors say the opposite they know nothing, and it is no symmetry.
        worst = torch.where(-least > most, least, most)
        # Where nothing was learned the scale may be zero: more than this says no more.
        return signed_root(worst / self.scales.clamp_min(1e-30)).clamp(-_LARGEST, _LARGEST)

    def _products(
        self, generators: Float[Tensor, "m d d"]
    ) -> tuple[Float[Tensor, "n m m"], Float[Tensor, "n m m"]]:
        """For each sample the inner products of residuals along all pairs of generators: those of
        one predictor with those of the other, and those of their mean with themselves.

        Generators are combined so that what they do to the samples is orthogonal, and each moves
        them by a mean square of 1: then the worst direction of a span is the largest eigenvalue.
        """
        units = self._orthogonal(generators)

        def residuals(model: Callable[[Batch], Tensor], piece: Batch) -> Float[Tensor, "b m k"]:
            along = [
                lie_derivative(model, piece, g, action=self.action, output=self.output)
                for g in units
            ]
            return torch.stack(along, dim=1).double()

        crossed, together = [], []
        for piece in self.pieces:
            one, two = (residuals(model, piece) for model in self.models)
            product, mean = one @ two.mT, (one + two) / 2
            crossed.append((product + product.mT).cpu() / 2)
            together.append((mean @ mean.mT).cpu())
        return torch.cat(crossed), torch.cat(together)

    def _orthogonal(self, generators: Float[Tensor, "m d d"]) -> Float[Tensor, "m d d"]:
        """The same spans, of the first, of the first two …, as `_products` wants them."""
        # Of one size in units of the spread: in others some would seem to move no sample.
        sizes = in_spreads(generators, self.spread).flatten(1).norm(dim=1)
        generators = generators / sizes[:, None, None]
        gram = torch.zeros(len(generators), len(generators), dtype=torch.float64)
        n = self.weights.shape[1]
        for piece in self.pieces:
            moved = torch.stack(
                [displacement(g, piece, self.action, self.spread) for g in generators]
            ).flatten(1)
            gram += (moved.double() @ moved.double().mT).cpu() / n
        # A direction that moves no sample stays a direction, which nothing speaks against.
        floor = 1e-12 * float(gram.diagonal().max())
        factor = torch.linalg.cholesky(gram + floor * torch.eye(len(gram), dtype=gram.dtype))
        inverse = torch.linalg.solve_triangular(
            factor, torch.eye(len(gram), dtype=gram.dtype), upper=False
        )
        return torch.einsum("kl,lij->kij", inverse.to(generators), generators)

    def _elsewhere(self, rng: torch.Generator) -> Float[Tensor, " n"]:
        """For each sample the product of both derivatives along random directions, on average.

        In each of them samples move, in the mean square, by 1.
        """
        n = self.weights.shape[1]
        reference = tensors_of(self.pieces[0])[0]
        total = torch.zeros(n, dtype=torch.float64)
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
