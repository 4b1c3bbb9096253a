"""What two trained teams say about a task, and judge about spans."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from lieaugmenter.actions.base import Action, Batch, map_tensors
from lieaugmenter.analysis.bench import (
    CLOSURE_BOUND,
    DEFECT_BOUND,
    Bench,
    Dimensions,
    Row,
    visible_defect,
)
from lieaugmenter.analysis.bootstrap import LEAST_SAMPLES
from lieaugmenter.analysis.components import (
    ABSENT,
    PRESENT,
    UNCLEAR,
    Candidate,
    Components,
    components,
)
from lieaugmenter.analysis.conjugation import USUAL_NOISE
from lieaugmenter.analysis.dimension import DerivativeBench
from lieaugmenter.analysis.equivariance import jacobian
from lieaugmenter.analysis.identify import Identity
from lieaugmenter.analysis.moving import MovingBench, Witness
from lieaugmenter.analysis.polarization import entries
from lieaugmenter.analysis.verdict import Trial, quality_of
from lieaugmenter.discovery.spans import identities_of, normalised, on_the_data
from lieaugmenter.discovery.teams import SEARCHED, Team, sent
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.lie.brackets import orthonormal
from lieaugmenter.lie.units import in_spreads

# Samples on which generators are judged, of those that are held out; and where they are moved those
# of each half on which they are ordered, and others on which they are judged.
_JUDGED = 2000
_ORDERED = 500
OF_HALF = _ORDERED + 1000
# Samples on which finite elements are tested, which compares all pairs of them.
_COMPARED = 500
# Squared entries below such shares of the largest are left out where a span has no name with them.
_SHARES = (0.03, 0.1, 0.3)
# A column matters as good as nothing whose share of all changes of predictions is smaller. Of
# irrelevant ones among twenty it was at most 0.0002, of relevant ones at least 0.029.
HARDLY = 1e-3
# Coefficients at which it is asked how far a symmetry holds, up to the range.
STEPS_OF_RANGE = 8


@dataclass(frozen=True)
class Extent:
    """How far along exp(wL) a symmetry holds on held-out data, in steps of the coefficient.

    Attributes
    ----------
    holds_until
        Up to here every step surely holds; None where not even the first does.
    open_until
        Up to here no step surely fails, and none moves samples to where there are no data; 0 where
        the first does.
    beyond
        Outcome of the step after `holds_until`: ``"absent"`` where it surely fails, ``"unclear"``
        where that cannot be decided, ``"cannot be judged"`` where moved samples leave the data;
        None where all steps hold.
    fails_at
        The first step that surely fails; None where none does.
    """

    holds_until: float | None
    open_until: float
    beyond: str | None
    fails_at: float | None = None

    @classmethod
    def of(cls, outcomes: Mapping[float, str]) -> Extent:
        """From the outcomes of all steps, by their coefficients.

        >>> Extent.of({0.5: "present", 1.0: "unclear", 1.5: "absent"})
        Extent(holds_until=0.5, open_until=1.0, beyond='unclear', fails_at=1.5)
        """
        surely = _until(outcomes, (PRESENT,))
        beyond = (outcome for w, outcome in outcomes.items() if w > surely)
        fails = (w for w, outcome in outcomes.items() if outcome == ABSENT)
        return cls(
            surely or None,
            _until(outcomes, (PRESENT, UNCLEAR)),
            next(beyond, None),
            next(fails, None),
        )


def _until(outcomes: Mapping[float, str], accepted: Sequence[str]) -> float:
    """The last coefficient before any whose outcome is not accepted; 0 where the first is not."""
    reached = 0.0
    for w, outcome in outcomes.items():
        if outcome not in accepted:
            break
        reached = w
    return reached


@dataclass(frozen=True, eq=False)
class Evidence:
    """What two teams say about a task.

    Attributes
    ----------
    dimensions
        The table over dimensions, with its generators in the units of training.
    quality
        R² of the mean of both teams on held-out data, or their accuracy above the majority
        class's, scaled to [0, 1].
    first, second
        The teams.
    bench
        Judges other spans by the same teams and samples.
    trial, before
        Where generators were imposed on these teams, and helped: how much, and the evidence before.
    """

    dimensions: Dimensions
    quality: float
    first: Team
    second: Team
    bench: Bench
    trial: Trial | None = None
    before: Evidence | None = None

    def by_single_networks(self, span: Float[Tensor, "c d d"]) -> list[float]:
        """The defect of a span by each pair of networks, one of each team: the noise of training.

        Members of a team learn from the same samples, and differ by where their training began.
        Empty where each team has one member: that pair has been asked. And where samples were
        moved: what a network got wrong by itself is no part of that.
        """
        bench = self.bench
        pairs = list(itertools.product(self.first.singly(), self.second.singly()))
        if len(pairs) == 1 or isinstance(bench, MovingBench):
            return []
        benches = (
            DerivativeBench(*pair, bench.samples, action=bench.action, output=bench.output)
            for pair in pairs
        )
        return [one.judge(span).defect for one in benches]

    def hardly_matter(self) -> list[int]:
        """Columns of a table along each of which predictions change by next to nothing.

        As for generators, what one team got wrong is independent of the other, and averages out of
        the product of their derivatives.
        """
        x = self.bench.samples
        if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != self.bench.action.rows:
            return []

        def slopes(team: Team) -> Float[Tensor, "n columns out"]:
            return torch.cat([jacobian(team, piece)[1] for piece in self.bench.pieces]).double()

        products = (slopes(self.first) * slopes(self.second)).sum(2).mean(0)
        # Each column by its spread.
        changes = products * self.bench.spread.to(products).square()
        least = HARDLY * changes.clamp_min(0.0).sum()
        return torch.nonzero(changes < least).flatten().tolist()

    def extent(self, generator: Float[Tensor, "d d"], largest: float) -> Extent:
        """How far along exp(wL) the symmetry holds on held-out data, at most to `largest`."""
        grid = [largest * step / STEPS_OF_RANGE for step in range(1, STEPS_OF_RANGE + 1)]
        generator = generator.detach()
        if isinstance(self.bench, MovingBench):
            # The truth about moved samples says more than two rough predictors.
            return Extent.of({w: self.bench.outcome(generator, w) for w in grid})
        matrix = generator.double().cpu()
        steps = {w: Candidate(f"{w:g}", torch.linalg.matrix_exp(w * matrix)) for w in grid}
        tested = self.components(candidates=list(steps.values()))
        outcomes = {c.candidate.name: c.outcome for c in tested.components}
        # What moves no sample is not listed, and changes no prediction.
        return Extent.of({w: outcomes.get(step.name, PRESENT) for w, step in steps.items()})

    def named(self, dimension: int) -> tuple[Float[Tensor, "c d d"], Identity | None]:
        """The best generators of a dimension, each of norm √D, and what they are.

        They are snapped to the exact algebra where it is not worse on held-out samples.
        """
        found, action = self.dimensions.generators[:dimension], self.bench.action
        before = self.bench.judge(found)
        first, rejected = None, []
        for identity in identities_of(found, action, self.bench.spread):
            first = first or identity
            if identity.exact is None:
                continue
            after = self.bench.judge(identity.exact.to(found))
            if self._as_good(before, after):
                return normalised(identity.exact.to(found), action, self.bench.spread), identity
            rejected.append(
                f"{identity.name} is near, but not what holds on held-out samples: its defect is "
                f"{after.defect:.3g}, not {before.defect:.3g}."
            )
        if first is not None and rejected:
            first = first.unnamed(*rejected)
        return normalised(found, action, self.bench.spread), first

    def _as_good(self, before: Row, after: Row) -> bool:
        """Whether a span that was made exact holds, on held-out samples, as well as it did."""
        small = abs(after.defect) <= max(abs(before.defect), DEFECT_BOUND / 2)
        visible = self.dimensions.visible
        return small and (after.holds(visible) or not before.holds(visible))

    def simplified(self) -> Evidence:
        """The same with a table over large entries alone, where what is counted has no name.

        Where features are far from zero, or small, some entries hardly move the samples. They are
        known badly, however well a predictor was taught: they spoil the generators that there are,
        and some appear to be symmetries that are none.
        """
        count, action = self.dimensions.count(), self.bench.action
        found = self.dimensions.generators[:count]
        if not count or self.dimensions.leaving:
            return self
        names = [i.named for i in identities_of(found, action, self.bench.spread)]
        if not names or any(names):
            return self
        weights = orthonormal(in_spreads(found, self.bench.spread)).square().sum(0)
        for share in _SHARES:
            candidates = entries((weights > share * weights.max()).float()).to(found)
            table = self.bench.dimensions(candidates=candidates)
            looked_at = len(self.dimensions.generators)
            table = replace(
                table,
                visible=self.dimensions.visible,
                idle=self.dimensions.idle,
                left_out=looked_at - len(table.generators),
            )
            left = table.count()
            if 2 * left <= count:
                return self
            if table.rows[left - 1].closure <= USUAL_NOISE:
                return replace(self, dimensions=table)
        return self

    def preferring_a_name(self) -> Evidence:
        """The same with fewer generators counted, where only fewer have a name.

        What changes slowly changes little along many generators, and how little can still be told
        from nothing depends on what the teams have not learned. A larger span without a name, whose
        defect is surely further from zero than that of a smaller one with a name, is taken for an
        approximate symmetry.
        """
        table = self.dimensions
        count = table.count()
        if count < 2 or self._is_named(count) in (True, None):
            return self
        for fewer in range(count - 1, 0, -1):
            row = table.rows[fewer - 1]
            closed = row.closure <= CLOSURE_BOUND
            if closed and table.rows[count - 1].surely_beyond(row) and self._is_named(fewer):
                return replace(self, dimensions=replace(table, most=fewer))
        return self

    def _is_named(self, dimension: int) -> bool | None:
        """Whether the best generators of a dimension have a name; None where none is looked for."""
        _, identity = self.named(dimension)
        return None if identity is None else identity.named

    @torch.no_grad()
    def losses(self, y: Tensor) -> Float[Tensor, " n"]:
        """Of each sample on which the teams are judged: the mean of what both lose."""
        return (self._losses(self.first, y) + self._losses(self.second, y)) / 2

    def _losses(self, team: Team, y: Tensor) -> Float[Tensor, " n"]:
        predictions = torch.cat([team(piece) for piece in self.bench.pieces]).double().cpu()
        y = y[: len(predictions)].cpu()
        if team.classes:
            return -predictions.gather(1, y[:, None]).squeeze(1).clamp_min(1e-12).log()
        return (predictions.reshape(len(y), -1) - y.reshape(len(y), -1)).square().mean(1)

    def components(self, **options: Any) -> Components:
        """Discrete transformations, judged by the same teams; see `analysis.components`."""
        some = map_tensors(lambda t: t[:_COMPARED], self.bench.samples)
        action, output = self.bench.action, self.bench.output
        return components(self.first, self.second, some, action=action, output=output, **options)


def weigh(
    first: Team,
    second: Team,
    search: Batch,
    held_out: tuple[Batch, Tensor],
    *,
    action: Action,
    output: Action,
    parts: Sequence[tuple[Batch, Tensor]] = (),
    candidates: Float[Tensor, "n d d"] | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
) -> Evidence:
    """What two trained teams say; the parameters are those of `gather`.

    Parameters
    ----------
    search
        Inputs on which generators are ordered.
    parts
        Samples of the halves that each team learned from, and the other has not seen. Where they
        are given, and not too few, samples are moved, instead of asking for derivatives, which are
        rough on images (`MovingBench`).
    """
    where = pick_device(device)
    search = sent(search, SEARCHED, where)
    judge, y = sent(held_out[0], _JUDGED, where), held_out[1][:_JUDGED]
    if parts and min(len(y), *(len(known) for _, known in parts)) >= LEAST_SAMPLES:
        bench = _moving((first, second), (judge, y), parts, action, output, where, seed)
    else:
        bench = DerivativeBench(
            first, second, judge, search=search, action=action, output=output, seed=seed
        )
    candidates, equations, leaving = on_the_data(search, candidates, action)
    found = bench.dimensions(candidates=candidates)
    found = replace(found, equations=equations, leaving=leaving)
    with torch.no_grad():
        quality = quality_of(((first(judge) + second(judge)) / 2).cpu(), y)
    # Of samples that were moved nothing is put down to what the teams have not learned.
    if not first.classes and not found.moved:
        found = replace(found, visible=visible_defect(quality))
    return Evidence(found, quality, first, second, bench)


def _moving(
    teams: tuple[Team, Team],
    held_out: tuple[Batch, Tensor],
    parts: Sequence[tuple[Batch, Tensor]],
    action: Action,
    output: Action,
    where: torch.device,
    seed: int,
) -> MovingBench:
    """Both teams on what is held out, and each on the half that the other has learned from."""

    def both(x: Batch) -> Tensor:
        return (teams[0](x) + teams[1](x)) / 2

    def witness(model: Callable[[Batch], Tensor], x: Batch, y: Tensor) -> Witness:
        truth = one_hot(y, teams[0].classes).float() if teams[0].classes else y
        x, truth = map_tensors(lambda t: t.to(where), (x, truth))
        return Witness(model, x, truth)

    judging, searching = [witness(both, *held_out)], []
    for (x, y), other in zip(parts, reversed(teams), strict=True):
        n = min(_ORDERED, len(y) // 2)
        searching.append(witness(other, map_tensors(lambda t, n=n: t[:n], x), y[:n]))
        judging.append(witness(other, map_tensors(lambda t, n=n: t[n:], x), y[n:]))
    one, two = searching
    return MovingBench(judging, (one, two), action=action, output=output, seed=seed)
