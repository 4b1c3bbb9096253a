"""A bench on which generators are ordered, and spans of them judged: a table over dimensions.

What the benches share. How one measures what moving along a direction does, and what it compares
that with, is its own: by derivatives of two predictors (`dimension`), or by asking labels of
samples that were moved (`moving`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.analysis.bootstrap import bounds, resample, signed_root
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.polarization import Polarization, displacement
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
_LARGEST = 10.0
# Of a table: one more takes the time and the memory of its square. All generators of ten columns.
MOST_ROWS = 100
# So many rows there are to look at, in any case.
_SHOWN = 16
# Samples at once, and numbers of them.
_AT_ONCE = 1024
_NUMBERS_AT_ONCE = 2**21


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
    least
        A defect that may be below this is no symmetry.
    """

    dimension: int
    defect: float
    lower: float
    upper: float
    closure: float
    together: float
    least: float = -DEFECT_BOUND

    def holds(self, visible: float | None = None) -> bool:
        """Whether the span surely is a symmetry.

        A defect that may be far below zero is none: the derivatives of both predictors may then
        have opposite signs. Nor is one that is small, but surely further from zero than `visible`:
        that one is seen.
        """
        small = self.lower >= self.least and max(self.upper, self.together) <= DEFECT_BOUND
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
    agreement
        For each row the smallest principal cosine between the spans that each predictor gives by
        itself.
    moved, among
        Whether samples were moved, and their labels asked, rather than derivatives; and whether
        those that moved along the best direction are still among the others.
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
    agreement: Sequence[float] = ()
    moved: bool = False
    among: bool = True

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


@dataclass(frozen=True, eq=False)
class Ordering:
    """All generators that come into question, the best first.

    Attributes
    ----------
    together
        As both predictors together respect them.
    alone
        As each of them does by itself, (m, d, d) twice.
    """

    together: Polarization
    alone: tuple[Float[Tensor, "m d d"], Float[Tensor, "m d d"]]


class Bench(ABC):
    """Judges spans of generators by what two predictors say about samples.

    Subclasses call `weigh_by` when they are built, and give `order` and `forms`.

    Parameters
    ----------
    samples
        Held-out inputs, seen by neither predictor.
    action, output
        How generators act.

    Attributes
    ----------
    agree
        Whether the predictors surely have anything in common.
    pieces
        The samples a few at a time.
    spread
        The unit of displacements along each coordinate.
    least
        As of `Row`.
    """

    least = -DEFECT_BOUND

    def __init__(self, samples: Batch, *, action: Action, output: Action) -> None:
        self.action, self.output, self.samples = action, output, samples
        self.spread = action.spread(samples)
        numbers = sum(t[:1].numel() for t in tensors_of(samples))
        self.chunk = min(_AT_ONCE, max(16, _NUMBERS_AT_ONCE // max(numbers, 1)))
        self.pieces = self.cut(samples)

    def cut(self, x: Batch) -> list[Batch]:
        """Samples a few at a time: a derivative doubles what a network keeps in memory."""
        return [
            map_tensors(lambda t, at=start: t[at : at + self.chunk], x)
            for start in range(0, batch_size(x), self.chunk)
        ]

    def weigh_by(self, elsewhere: Float[Tensor, " n"], seed: int) -> None:
        """Compare with what was measured of each sample where it moved elsewhere, as far."""
        n = len(elsewhere)
        # The samples as they are come last.
        whole = torch.full((1, n), 1 / n, dtype=torch.float64)
        self.weights = torch.cat([resample(n, seed), whole])
        self.scales = self.weights @ elsewhere
        self.agree = float(bounds(self.scales[:-1])[0]) > 0

    @abstractmethod
    def order(self, candidates: Float[Tensor, "n d d"] | None = None) -> Ordering:
        """Generators in the order in which the predictors respect them."""

    @abstractmethod
    def forms(
        self, units: Float[Tensor, "m d d"]
    ) -> Iterator[tuple[Float[Tensor, "n k k"], Float[Tensor, "n k k"]]]:
        """For the first generator, the first two …: quadratic forms on their span for each sample.

        Their mean is what is relative to `elsewhere` the squared defect; that of the second form
        is too large rather than too small, whatever chose the generators.

        Parameters
        ----------
        units
            Generators that do orthogonal things to the samples, each by a mean square of 1.
        """

    def dimensions(
        self, *, candidates: Float[Tensor, "n d d"] | None = None, most: int = MOST_ROWS
    ) -> Dimensions:
        """The table of the generators that come first; as `dimension.dimensions`."""
        ordering = self.order(candidates)
        found = ordering.together
        rows = self.rows(found.generators[:most])
        # The worst direction of a larger span is worse: beyond a broken one there is nothing.
        settled = rows[-1].lower > POSSIBLE_BOUND
        generators = found.generators if settled else found.generators[:most]
        first, second = (in_spreads(generators, self.spread) for generators in ordering.alone)
        agreement = [
            float(principal_cosines(first[: row.dimension], second[: row.dimension]).min())
            for row in rows
        ]
        others = len(found.generators) - len(generators)
        return Dimensions(
            rows, generators, found.idle, self.agree, left_out=others, agreement=agreement
        )

    def judge(self, generators: Float[Tensor, "c d d"]) -> Row:
        """The row of a span."""
        *_, (crossed, together) = self.forms(self.orthogonal(generators))
        return self._row(generators, crossed, together)

    def rows(self, generators: Float[Tensor, "m d d"]) -> list[Row]:
        """A row for the span of the first generator, of the first two, and so on."""
        rows = []
        for crossed, together in self.forms(self.orthogonal(generators)):
            rows.append(self._row(generators, crossed, together))
            if self.ends_with(rows[-1]):
                break
        return rows

    def ends_with(self, row: Row) -> bool:
        """Whether nothing is to be learned from more generators, nor is there more to look at."""
        # The worst direction of a larger span is worse.
        return row.dimension >= _SHOWN and row.lower > POSSIBLE_BOUND

    def _row(
        self,
        generators: Float[Tensor, "m d d"],
        crossed: Float[Tensor, "n k k"],
        together: Float[Tensor, "n k k"],
    ) -> Row:
        k = crossed.shape[-1]
        (least, most), (_, largest) = (self._extremes(form) for form in (crossed, together))
        # Where both predictors say the opposite they know nothing, and it is no symmetry.
        defects = torch.where(-least > most, least, most)
        low, high = bounds(defects[:-1])
        closure = closure_residual(in_spreads(generators[:k], self.spread))
        highest = bounds(largest[:-1])[1]
        return Row(
            k, float(defects[-1]), float(low), float(high), closure, float(highest), self.least
        )

    def _extremes(self, forms: Float[Tensor, "n k k"]) -> Float[Tensor, "2 r"]:
        """The least and the largest defect in a span, by the mean form of every resample."""
        means = torch.einsum("rn,nij->rij", self.weights, forms)
        extremes = torch.linalg.eigvalsh(means)[:, [0, -1]].mT
        # Where nothing was learned the scale may be zero: more than this says no more.
        return signed_root(extremes / self.scales.clamp_min(1e-30)).clamp(-_LARGEST, _LARGEST)

    def orthogonal(self, generators: Float[Tensor, "m d d"]) -> Float[Tensor, "m d d"]:
        """The same spans, of the first, of the first two …, as `forms` wants them."""
        # Of one size in units of the spread: in others some would seem to move no sample.
        sizes = in_spreads(generators, self.spread).flatten(1).norm(dim=1)
        generators = generators / sizes[:, None, None]
        gram = self.displacements(generators)
        if not bool((gram.diagonal() > 0).any()):
            raise ValueError("no candidate moves any sample: there is no symmetry to look for")
        # A direction that moves no sample stays a direction, which nothing speaks against.
        floor = 1e-12 * float(gram.diagonal().max())
        factor = torch.linalg.cholesky(gram + floor * torch.eye(len(gram), dtype=gram.dtype))
        inverse = torch.linalg.solve_triangular(
            factor, torch.eye(len(gram), dtype=gram.dtype), upper=False
        )
        return torch.einsum("kl,lij->kij", inverse.to(generators), generators)

    def displacement(self, generator: Float[Tensor, "d d"], x: Batch) -> Float[Tensor, "n k"]:
        """What a generator does to samples, in units of the spread of each coordinate."""
        return displacement(generator, x, self.action, self.spread)

    def displacements(self, generators: Float[Tensor, "m d d"]) -> Float[Tensor, "m m"]:
        """Mean products of what generators do to the samples, in units of the spread."""
        gram = torch.zeros(len(generators), len(generators), dtype=torch.float64)
        for piece in self.pieces:
            moved = torch.stack([self.displacement(g, piece) for g in generators]).flatten(1)
            gram += (moved.double() @ moved.double().mT).cpu()
        return gram / batch_size(self.samples)
