"""Ask labels about samples that were moved, where derivatives of predictors mean little.

The derivatives of a network on images are rough, also along a symmetry that its predictions have.
Here a predictor is asked about samples that it has not seen, moved by a finite element g, and what
it says is compared with what is known of them:

    excess(g) = E ‖f(g·x) - g·y‖² - E ‖f(x) - y‖²

Where the task has the symmetry, and g·x is as likely as x, both means are the same, however badly f
was learned. Where it has not, or where g leads to what f has never seen, the first is larger. So a
small excess speaks for a symmetry; a large one against it only where moved samples are still ones
that the task could have.

An image that is warped is blurred. With h the square root of g it is therefore h·h·x that is
compared with h⁻¹·h·x, which is warped as often, and blurred as much.

The unit of an excess is that of unrelated samples as far apart as one was moved: what is lost by
taking the prediction for another sample instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from lieaugmenter.actions.base import Action, Batch, map_tensors, tensors_of
from lieaugmenter.analysis.bench import (
    DEFECT_BOUND,
    MOST_ROWS,
    POSSIBLE_BOUND,
    Bench,
    Dimensions,
    Ordering,
    Row,
)
from lieaugmenter.analysis.bootstrap import bounds, signed_root
from lieaugmenter.analysis.components import ABSENT, PRESENT, UNCLEAR, UNJUDGED
from lieaugmenter.analysis.pairs import partners
from lieaugmenter.analysis.polarization import Polarization, ordered, polarize
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.units import in_spreads

# How far samples are moved, in the root mean square and in units of how far the nearest other one
# is, and the least in units of how far any other is: nearer nothing changes, and further away is
# where no sample is.
_STEP = 1.5
_LEAST_STEP = 0.1
# How often directions are put in order, each time along those of the time before.
_ROUNDS = 3
# Distances between images are those of as many pixels a side.
_PIXELS = 16
# Directions in which it is looked how far samples come.
_RANDOM_DIRECTIONS = 8
# A finite element leads off the samples where fewer of those that it moved than this are as near to
# others as the given share was before.
_LEAST_NEAR, _USUAL = 0.5, 0.95


@dataclass(frozen=True, eq=False)
class Witness:
    """Samples of which the truth is known, and a predictor that has not seen them.

    Attributes
    ----------
    model
        The predictor.
    x, y
        Inputs, and what the predictor should say: numbers, or rows of zeros with a one for classes.
    """

    model: Callable[[Batch], Tensor]
    x: Batch
    y: Float[Tensor, "n *out"]


class MovingBench(Bench):
    """Judges spans of generators by labels of samples that they move.

    Parameters
    ----------
    judging
        Those by which generators are judged; the samples of the first are held out from all.
    searching
        Those by which they are ordered: one for each predictor, with others than for judging.
    action, output
        How generators act.
    seed
        Of the coefficients and of the bootstrap.

    Attributes
    ----------
    step
        How far samples are moved in the root mean square.
    """

    # Errors of moved samples are smaller than those of others by chance, too. Opposite signs, which
    # the bound is there for where two predictors are multiplied, do not occur.
    least = -0.2

    def __init__(
        self,
        judging: Sequence[Witness],
        searching: tuple[Witness, Witness],
        *,
        action: Action,
        output: Action,
        seed: int = 0,
    ) -> None:
        super().__init__(judging[0].x, action=action, output=output)
        self.judging, self.searching = judging, searching
        apart = _apart(self._places(judging[0].x))
        self.step = float(max(_STEP * apart.amin(1).median(), _LEAST_STEP * apart.median()))
        rng = torch.Generator().manual_seed(seed)
        # One coefficient for all might be that of a discrete symmetry.
        self.coefficients = {
            witness: self.step * 3**0.5 * torch.rand(len(witness.y), generator=rng)
            for witness in (*judging, *searching)
        }
        random = self._random_directions(rng)
        elsewhere = [self._of_others(w, random, self.coefficients[w]) for w in judging]
        self.weigh_by(torch.cat(elsewhere), seed)

    def order(self, candidates: Float[Tensor, "n d d"] | None = None) -> Ordering:
        one, two = self.searching
        # Derivatives, rough as they are, tell about which directions come into question.
        together = polarize(
            one.model, one.x, action=self.action, output=self.output, other=two.model,
            candidates=candidates, spread=self.spread, chunk=self.chunk,
        )  # fmt: skip
        idle, form, units = together.idle, torch.empty(0), torch.empty(0)
        # Moves are not so small that what they change is a quadratic form, but nearly so along what
        # changes little: in the end that is among what is moved along.
        for _ in range(_ROUNDS):
            units = self.orthogonal(together.generators)
            *_, form = self._growing(self.searching, units)
            together = self._by(form, units)
        n = len(one.y)
        alone = (self._by(form[:n], units).generators, self._by(form[n:], units).generators)
        return Ordering(replace(together, idle=idle), alone)

    def dimensions(
        self, *, candidates: Float[Tensor, "n d d"] | None = None, most: int = MOST_ROWS
    ) -> Dimensions:
        table = super().dimensions(candidates=candidates, most=most)
        best = self.orthogonal(table.generators[:1])[0]
        return replace(table, moved=True, among=self._stay(best, self.step))

    def _by(self, form: Float[Tensor, "n m m"], units: Float[Tensor, "m d d"]) -> Polarization:
        """The order by some samples' excess."""
        found = ordered(units, form.mean(0), torch.eye(len(units), dtype=torch.float64))
        sizes = in_spreads(found.generators, self.spread).flatten(1).norm(dim=1)
        return replace(found, generators=found.generators / sizes[:, None, None])

    def forms(
        self, units: Float[Tensor, "m d d"]
    ) -> Iterator[tuple[Float[Tensor, "n k k"], Float[Tensor, "n k k"]]]:
        """The excess of each sample, twice: of what was not seen nothing cancels by chance."""
        for form in self._growing(self.judging, units):
            yield form, form

    def outcome(self, generator: Float[Tensor, "d d"], coefficient: float) -> str:
        """Whether the elements exp(± w L) surely are symmetries, surely are none, or neither.

        Or lead to where there are no samples. Elements that move samples less far than those by
        which generators are judged are judged as these are: so near hardly anything changes.
        """
        unit = self.orthogonal(generator.unsqueeze(0))[0]
        if coefficient * float(generator.norm() / unit.norm()) <= self.step:
            row = self.judge(generator.unsqueeze(0))
            return self._outcome_of(row.lower, row.upper)
        if not self._stay(generator, coefficient):
            return UNJUDGED
        excess, others = [], []
        for witness in self.judging:
            sizes = torch.full((len(witness.y),), coefficient)
            excess.append(self._excess(witness, generator, sizes))
            others.append(self._of_others(witness, [generator], sizes))
        means = self.weights @ torch.stack([torch.cat(excess), torch.cat(others)], dim=1)
        defects = signed_root(means[:, 0] / means[:, 1].clamp_min(1e-30))
        lower, upper = bounds(defects[:-1])
        return self._outcome_of(float(lower), float(upper))

    def _outcome_of(self, lower: float, upper: float) -> str:
        if lower >= self.least and upper <= DEFECT_BOUND:
            return PRESENT
        return ABSENT if lower > POSSIBLE_BOUND else UNCLEAR

    def _stay(self, generator: Float[Tensor, "d d"], coefficient: float) -> bool:
        """Whether moved samples are as near to others as those that are blurred as much."""
        witness = self.judging[0]
        places = self._places(witness.x)
        return all(
            _near(*(_to_nearest(side, places) for side in self._sides(witness, generator, size)))
            for size in (coefficient, -coefficient)
        )

    def _sides(
        self, witness: Witness, generator: Float[Tensor, "d d"], size: float
    ) -> list[Float[Tensor, "n k"]]:
        """Where all samples come, and where they are when blurred as much."""
        there, back = [], []
        for x, _, sizes in self._few(witness, torch.full((len(witness.y),), size)):
            forth, half = self._halfway(x, generator, sizes)
            there.append(self._place(_moved(self.action, forth, half)))
            back.append(self._place(_moved(self.action, forth.inverse(), half)))
        return [torch.cat(there), torch.cat(back)]

    def _halfway(
        self, x: Batch, generator: Float[Tensor, "d d"], sizes: Float[Tensor, " n"]
    ) -> tuple[Elements, Batch]:
        """The square roots of elements, and samples that were moved by them."""
        forth = _elements(generator, sizes / 2)
        return forth, _moved(self.action, forth, x)

    def ends_with(self, row: Row) -> bool:
        # The worst direction of a larger span is worse.
        return row.lower > POSSIBLE_BOUND

    def _growing(
        self, witnesses: Sequence[Witness], units: Float[Tensor, "m d d"]
    ) -> Iterator[Float[Tensor, "n k k"]]:
        """The excess along the first unit, the first two …, as quadratic forms."""

        def along(unit: Float[Tensor, "d d"]) -> Float[Tensor, " n"]:
            return torch.cat([self._excess(w, unit, self.coefficients[w]) for w in witnesses])

        form = torch.zeros(sum(len(w.y) for w in witnesses), 0, 0, dtype=torch.float64)
        for k, unit in enumerate(units):
            own = along(unit)
            grown = own.new_zeros(len(own), k + 1, k + 1)
            grown[:, :k, :k] = form
            grown[:, k, k] = own
            for j in range(k):
                # Not from the sum and what is known already: beyond a quadratic form the changes
                # along both are alike, and cancel.
                with_it, against = (along((units[j] + s * unit) / 2**0.5) for s in (1.0, -1.0))
                grown[:, j, k] = grown[:, k, j] = (with_it - against) / 2
            form = grown
            yield form

    @torch.no_grad()
    def _excess(
        self, witness: Witness, generator: Float[Tensor, "d d"], sizes: Float[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        """Of each sample by a coefficient of its own, on average of both ways."""
        found = []
        for x, y, size in self._few(witness, sizes):
            excess = torch.zeros(len(y), dtype=torch.float64)
            for way in (1.0, -1.0):
                forth, half = self._halfway(x, generator, way * size)
                there = _moved(self.action, forth, half)
                back = _moved(self.action, forth.inverse(), half)
                # Targets that are images are blurred by a warp, too.
                truth_halfway = _moved(self.output, forth, y)
                truth = _moved(self.output, forth, truth_halfway)
                kept = _moved(self.output, forth.inverse(), truth_halfway)
                lost = _errors(witness.model(there), truth) - _errors(witness.model(back), kept)
                excess += lost / 2
            found.append(excess)
        return torch.cat(found)

    @torch.no_grad()
    def _of_others(
        self,
        witness: Witness,
        generators: Sequence[Float[Tensor, "d d"]],
        sizes: Float[Tensor, " n"],
    ) -> Float[Tensor, " n"]:
        """What is lost by taking the prediction for another sample.

        For one that is as far away as each sample comes, on average of the generators.
        """
        said = torch.cat([witness.model(piece) for piece in self.cut(witness.x)])
        places = self._places(witness.x)
        path = torch.zeros(len(places)).to(places)
        for generator in generators:
            moved = [
                self._place(_moved(self.action, _elements(generator, size), x))
                for x, _, size in self._few(witness, sizes)
            ]
            path += (torch.cat(moved) - places).norm(dim=1) / len(generators)
        partner, shorter = partners(_apart(places), path)
        lost = _errors(said[partner.to(said.device)], witness.y) - _errors(said, witness.y)
        return lost * shorter.double().cpu()

    def _random_directions(self, rng: torch.Generator) -> list[Float[Tensor, "d d"]]:
        """As likely along every coordinate, in units of its spread, and as far as units are."""
        mask = self.action.mask
        random = torch.randn(_RANDOM_DIRECTIONS, *mask.shape, generator=rng) * mask
        relative = in_spreads(random.to(tensors_of(self.samples)[0]), 1 / self.spread)
        return [self.orthogonal(direction.unsqueeze(0))[0] for direction in relative]

    def _few(self, witness: Witness, sizes: Float[Tensor, " n"]) -> Iterator[tuple[Any, ...]]:
        """Inputs, truth and coefficients of a few samples at a time."""
        sizes = sizes.to(tensors_of(witness.x)[0])
        pieces = self.cut(witness.x), witness.y.split(self.chunk), sizes.split(self.chunk)
        return zip(*pieces, strict=True)

    def _places(self, x: Batch) -> Float[Tensor, "n k"]:
        return torch.cat([self._place(piece) for piece in self.cut(x)])

    def _place(self, x: Batch) -> Float[Tensor, "n k"]:
        """Where samples are, in units of the spread of each coordinate."""
        return self.action.moving(map_tensors(_coarse, self.action.in_spreads(x, self.spread)))

    def displacement(self, generator: Float[Tensor, "d d"], x: Batch) -> Float[Tensor, "n k"]:
        return self._place(self.action.differential(generator, x))


def _elements(generator: Float[Tensor, "d d"], coefficients: Float[Tensor, " n"]) -> Elements:
    return Elements(coefficients.view(-1, 1, 1), generator.unsqueeze(0).to(coefficients))


def _moved(action: Action, elements: Elements, x: Batch) -> Batch:
    """Each sample by an element of its own."""
    return map_tensors(lambda t: t.squeeze(1), action.act(elements, x))


def _coarse(x: Tensor) -> Tensor:
    """Images of at most so many pixels a side; all else as it is.

    What is far apart in noise or texture is not far away.
    """
    if x.ndim != 4 or max(x.shape[-2:]) <= _PIXELS:
        return x
    height, width = (min(side, _PIXELS) for side in x.shape[-2:])
    return adaptive_avg_pool2d(x, (height, width))


def _errors(said: Tensor, truth: Tensor) -> Float[Tensor, " n"]:
    return (said - truth.view_as(said)).flatten(1).double().square().sum(1).cpu()


def _near(there: Float[Tensor, " n"], back: Float[Tensor, " n"]) -> bool:
    """Whether enough samples that were moved are as near to others as nearly all were before."""
    usual = back.quantile(_USUAL)
    return float((there <= usual).double().mean()) >= _LEAST_NEAR


def _to_nearest(moved: Float[Tensor, "n k"], places: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """How far each sample is, when it was moved, from the nearest other one as it was."""
    return torch.cdist(moved, places).fill_diagonal_(torch.inf).amin(1)


def _apart(places: Float[Tensor, "n k"]) -> Float[Tensor, "n n"]:
    """Distances between samples; none is near itself."""
    return torch.cdist(places, places).fill_diagonal_(torch.inf)
