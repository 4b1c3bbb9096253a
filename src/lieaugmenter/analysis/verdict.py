"""The verdict: what was found, how well it holds on held-out data, and what that does not prove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.analysis.bench import DEFECT_BOUND, MOST_ROWS, POSSIBLE_BOUND, Dimensions, Row
from lieaugmenter.analysis.bootstrap import LEAST_SAMPLES, bounds, resample
from lieaugmenter.analysis.equivariance import lie_derivatives
from lieaugmenter.analysis.identify import Identity
from lieaugmenter.analysis.polarization import displacement
from lieaugmenter.lie.units import in_spreads
from lieaugmenter.runs import fields_of

# Below this share of explained variance a predictor has not learned the task.
LEAST_QUALITY = 0.5
# And below these, of numbers and of labels, what it has not learned may break the symmetry.
CERTIFIED_QUALITY = {"numbers": 0.9, "labels": 0.8}
# What the teams must explain, and the share to which their held-out loss must surely fall, where a
# symmetry is certified by imposing it.
_IMPOSED_QUALITY = {"numbers": 0.98, "labels": 0.9}
_IMPOSED_LOSS = 0.5
# Teams that have both learned a symmetric task badly, in the same way, have defects up to 0.2.
_NO_SYMMETRY_ABOVE = 0.2
# Nor is a direction refuted below this share of what is visible: it may not have been learned.
_HIDDEN = 0.67
# A direction whose defect is surely above this is no symmetry of the predictor.
_REFUTED_ABOVE = 0.5
# A defect that is surely above this may be that of an approximate symmetry.
_EXACT_BELOW = DEFECT_BOUND / 4
_RANDOM_DIRECTIONS = 16
_AT_ONCE = 100

NOT_CERTIFIED = (
    "A given number of generators is not certified: this does not ask whether the data have the "
    "symmetry by themselves; n_generators='auto' does."
)
BY_CONSTRUCTION = (
    "The predictor was trained to be equivariant along what was learned, so a small defect shows "
    "that a predictor with this symmetry fits the data, not that the data ask for it."
)
NOTHING_TO_COMPARE = (
    "The generators fill everything that the action allows, so there is no other direction to "
    "compare them with."
)


@dataclass(frozen=True)
class Verdict:
    """What can be said about the generators that were found.

    Attributes
    ----------
    outcome
        ``"certified"``, ``"refuted"`` or ``"inconclusive"``. Certified only by two teams of
        predictors (`decide`); refuted with dimension 0 says that there is surely no symmetry.
    group
        Name of the algebra that the generators span, None where it has none or is not looked for.
    dimension
        Number of generators.
    defect
        The largest, over generators, root mean square Lie derivative of the predictor on held-out
        data, relative to that of random generators that move the samples as far: 0 for an exact
        symmetry, about 1 for an arbitrary direction. Certificates on images move samples instead
        (`MovingBench`); the unit is then another sample as far away. None if it was not measured.
    upper
        Its 95 % bootstrap upper bound over samples.
    quality
        R² of the predictor on held-out data, or its accuracy above the majority class's, scaled
        to [0, 1].
    holds_until
        For each generator the coefficient up to which finite elements keep held-out predictions,
        or targets where samples were moved, in the norm of training; None where that is not sure of
        the smallest that was tried. Empty if not measured.
    components
        Name of the group with its discrete components, None if not tested, empty if it has none.
    reasons
        What the outcome rests on, in sentences.
    lower
        The 95 % bootstrap lower bound of the defect.
    more
        Whether there may be more generators: one more than are certified is not excluded.
    beyond
        For each generator, what was found beyond `holds_until`: ``"absent"`` where the symmetry
        surely fails, ``"unclear"`` where the samples do not decide, ``"cannot be judged"`` where
        moved samples leave the data; None where it holds over the whole range.
    imposed
        Whether it was certified by imposing it on the teams (`Trial`); the defect is that before.
    moved
        Whether teams were asked about moved samples, in place of derivatives.
    """

    outcome: str
    group: str | None
    dimension: int
    defect: float | None = None
    upper: float | None = None
    quality: float | None = None
    reasons: list[str] = field(default_factory=list)
    holds_until: list[float | None] = field(default_factory=list)
    components: str | None = None
    lower: float | None = None
    more: bool = False
    beyond: list[str | None] = field(default_factory=list)
    imposed: bool = False
    moved: bool = False

    @property
    def opposite(self) -> bool:
        """Whether the teams surely say the opposite of each other along the best direction."""
        below = self.upper is not None and self.upper < 0
        return below and self.outcome != "certified" and not self.moved

    def among(self, defects: Sequence[float]) -> Verdict:
        """With the noise of training beside that of the samples, where it can be told.

        Parameters
        ----------
        defects
            Of the best span, by pairs of networks that differ by where their training began; none
            where there is one pair only.
        """
        if not defects or self.defect is None:
            return self
        words = (
            f"The bounds are for other samples. For other starts of training: of {len(defects)} "
            f"pairs of single networks, one of each team, defects are {min(defects):.3g} to "
            f"{max(defects):.3g}."
        )
        first, *others = self.reasons
        return replace(self, reasons=[first, words, *others])

    def naming(self, identity: Identity) -> Verdict:
        """The same verdict with the name of what was found; nothing that is refuted has one."""
        named = identity.named and self.outcome != "refuted"
        group = identity.name if named else None
        return replace(self, group=group, reasons=[*self.reasons, *identity.reasons])

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``verdict.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any, where: object = "verdict.json") -> Verdict:
        """The verdict that `to_json` wrote, or a `RunError` that names the file, `where`."""
        return cls(**fields_of(cls, content, where))

    def __str__(self) -> str:
        least = "at least " if self.more else ""
        found = f"{least}{self.dimension} generator{'s' if self.dimension != 1 else ''}"
        group = f", {self.group}" if self.group else ""
        how = " by imposing it" if self.imposed else ""
        bound = ""
        if self.imposed and self.upper is not None and self.upper < 0:
            bound = ", of which the teams knew nothing before"
        elif self.opposite:
            bound = ", the teams say the opposite of each other"
        elif self.defect is not None and self.upper is not None:
            before = " before" if self.imposed else ""
            bound = (
                f", defect{before} {at_least_zero(self.defect):.3f} (95 % upper bound "
                f"{at_least_zero(self.upper):.3f})"
            )
        return f"{self.outcome}{how}: {found}{group}{bound}"


def at_least_zero(defect: float) -> float:
    """A defect for people: the estimate has no bias, and of a symmetry it may come out negative."""
    return max(defect, 0.0)


def quality_of(prediction: Tensor, y: Tensor) -> float:
    """R² for numbers; for labels, accuracy rescaled so that the majority class scores 0.

    Where all targets are the same there is nothing to explain, and it is 0.
    """
    if y.is_floating_point():
        residual = (prediction.reshape(y.shape) - y).square().sum()
        spread = (y - y.mean(0)).square().sum()
        return float(1 - residual / spread) if float(spread) > 0 else 0.0
    accuracy = float((prediction.argmax(-1) == y).float().mean())
    majority = float(y.bincount().max() / len(y))
    return (accuracy - majority) / max(1 - majority, 1e-9)


def defects(
    model: Callable[[Batch], Tensor],
    x: Batch,
    basis: Float[Tensor, "c d d"],
    *,
    mask: Float[Tensor, "d d"],
    action: Action,
    output: Action,
    seed: int = 0,
) -> tuple[Float[Tensor, "c n"], Float[Tensor, " n"]]:
    """Squared Lie derivatives of each sample: along the generators, and along random ones.

    Parameters
    ----------
    model
        The predictor.
    x
        Held-out inputs.
    basis
        The generators to judge, (c, d, d).
    mask
        Entries that random generators have, all that the action allows. Samples are moved as far by
        them as by the basis.
    action, output
        How they act.
    seed
        Of the random generators.

    Returns
    -------
    tuple
        (c, n) along the generators and (n,) averaged over random ones.
    """
    rng, spread = torch.Generator().manual_seed(seed), action.spread(x)
    shape = (_RANDOM_DIRECTIONS, *basis.shape[1:])
    random = torch.randn(shape, generator=rng).to(basis) * mask.to(basis)
    # As likely along every coordinate, in units of its spread.
    random = in_spreads(random, 1 / spread)

    def squares(generators: Tensor) -> Tensor:
        # Piece by piece: a derivative doubles what the network keeps in memory.
        changes, paths = [], []
        for start in range(0, batch_size(x), _AT_ONCE):
            piece = map_tensors(lambda t, at=start: t[at : at + _AT_ONCE], x)
            along = lie_derivatives(model, piece, generators, action=action, output=output)
            changes.append(along.square().sum(2))
            moved = torch.stack([displacement(g, piece, action, spread) for g in generators])
            paths.append(moved.square().sum(2))
        path = torch.cat(paths, dim=1).mean(1, keepdim=True).clamp_min(1e-30)
        return torch.cat(changes, dim=1) / path

    along, elsewhere = squares(basis), squares(random).mean(0)
    return along.cpu(), elsewhere.cpu()


@dataclass(frozen=True)
class Trial:
    """Generators that were imposed on both teams, and what that did to them.

    Where teams have not learned a task well enough to show its symmetry, learning on with the
    symmetry imposed is the test: from as many samples, one that holds teaches them much more, and
    one that does not spoils what they know. The defect alone is no test here, because they were
    trained for it.

    Attributes
    ----------
    row
        What the teams said of these generators before.
    loss
        The held-out loss as a share of what it was.
    upper
        Its 95 % bootstrap upper bound over samples.
    """

    row: Row
    loss: float
    upper: float

    def passed(self, table: Dimensions, quality: float, *, named: bool, labels: bool) -> bool:
        """Whether the generators surely help, still hold, and are an algebra that has a name.

        Among generators that help much, some that do a little harm go unnoticed; but together
        they are hardly ever an algebra.

        Parameters
        ----------
        table, quality
            Of the teams on which they were imposed.
        named
            Whether what these teams show is an algebra with a name.
        labels
            Whether the targets are labels.
        """
        return (
            named
            and table.count() >= self.row.dimension
            and self.upper <= _IMPOSED_LOSS
            and quality >= _IMPOSED_QUALITY["labels" if labels else "numbers"]
        )


def decide(
    table: Dimensions, quality: float, *, labels: bool, samples: int, trial: Trial | None = None
) -> Verdict:
    """An equivalence test: certified where the defect is surely small, not where none was seen.

    Parameters
    ----------
    table
        Over dimensions, from two teams of predictors.
    quality
        From `quality_of`, of both teams together on held-out data.
    labels
        Whether the targets are labels.
    samples
        Number of held-out samples.
    trial
        The trial that was passed, where the teams had generators imposed on them.
    """
    enough = samples >= LEAST_SAMPLES
    if trial is not None and enough:
        return _decided_by_trial(table, quality, trial, samples)
    least = CERTIFIED_QUALITY["labels" if labels else "numbers"]
    learned = table.agree and quality >= least and enough
    found = table.count() if learned else 0
    rows = {row.dimension: row for row in table.rows}
    shown = rows[max(found, 1)]
    # What they have not learned may hide a symmetry.
    least_refuted = POSSIBLE_BOUND if table.moved else _NO_SYMMETRY_ABOVE
    refuted_above = max(least_refuted, _HIDDEN * (table.visible or 0.0))
    reasons = [
        _asked_on(samples, table) + (f" {_said_of(shown, table)}" if table.agree else ""),
        _explained(quality),
        *_words_on_unidentified(table),
    ]
    if not table.agree:
        outcome = "inconclusive"
        reasons.append("The teams have nothing in common: the task was not learned.")
    elif not enough:
        outcome = "inconclusive"
        reasons.append(_too_few(samples))
    elif not learned:
        outcome = "inconclusive"
        reasons.append(
            f"To certify anything {least:g} of the variation must be explained: the rest may have "
            f"no symmetry, or another one. More data, a larger network or longer training may "
            f"help, unless the target is as noisy."
        )
    elif found:
        outcome = "certified"
        reasons += words_on_exactness(shown)
        reasons += _words_on_more(table, rows.get(found + 1))
    elif shown.lower > refuted_above and table.among:
        outcome = "refuted"
        reasons.append(
            "The best direction of all is surely no symmetry: there is no continuous symmetry "
            "among those that the action can express."
        )
    else:
        outcome = "inconclusive"
        reasons.append(_why_undecided(table, shown, refuted_above))
    if not table.agree:
        return Verdict(outcome, None, found, quality=quality, reasons=reasons)
    open_ended = table.left_out > 0 or _not_excluded(table, rows.get(found + 1))
    return Verdict(
        outcome, None, found, shown.defect, shown.upper, quality, reasons, lower=shown.lower,
        more=outcome == "certified" and open_ended, moved=table.moved,
    )  # fmt: skip


def _too_few(samples: int) -> str:
    return (
        f"{samples} held-out samples are too few to tell how large a defect is: {LEAST_SAMPLES} "
        f"are needed. Give more data, or hold out a larger share of them (validation)."
    )


def _why_undecided(table: Dimensions, best: Row, refuted_above: float) -> str:
    if best.lower < best.least and table.moved:
        return (
            "What was moved along the best direction may be predicted much better than what was "
            "not: that is neither a symmetry nor the lack of one."
        )
    if not table.among:
        return (
            "Moved along the best direction, samples are unlike all others: what the teams say of "
            "them is neither for a symmetry nor against one."
        )
    if best.upper < 0:
        return (
            "Along the best direction the teams surely say the opposite of each other: what they "
            "have in common is neither a symmetry nor the lack of one."
        )
    if abs(best.lower) <= DEFECT_BOUND and best.upper <= DEFECT_BOUND < best.together:
        return (
            f"Along the best direction both teams agree that little changes, but what each of them "
            f"got wrong may cancel there by chance: by their mean the defect is up to "
            f"{best.together:.3g}."
        )
    if table.visible is not None and best.lower > table.visible:
        return (
            f"The best direction is an approximate symmetry at most: its defect is surely larger "
            f"than what the teams have not learned accounts for ({table.visible:.3g}). That there "
            f"is none would be said of one that is surely above {refuted_above:.2g}."
        )
    return (
        f"The best direction is neither surely below {DEFECT_BOUND:g} nor surely above "
        f"{refuted_above:.2g}: an approximate symmetry, or a task that was not learned well enough "
        f"to tell."
    )


def words_on_exactness(row: Row) -> list[str]:
    """What is to be said of a defect that is small, but surely not zero."""
    if row.lower <= _EXACT_BELOW:
        return []
    return [
        f"The defect is surely above {row.lower:.3g}: either the teams have not learned the task "
        f"better, there as well, or the symmetry is an approximate one."
    ]


def _not_excluded(table: Dimensions, beyond: Row | None) -> bool:
    """Whether one generator more, of those that were looked at, may be a symmetry as well."""
    if table.most is not None or beyond is None or beyond.lower > DEFECT_BOUND:
        return False
    return table.visible is None or beyond.lower <= table.visible


def _words_on_more(table: Dimensions, beyond: Row | None) -> list[str]:
    """What is to be said of a span with one generator more than is certified."""
    if beyond is None or beyond.lower > DEFECT_BOUND:
        return []
    measured = (
        f"its span has a defect of {beyond.defect:.3g} (95 % bounds {beyond.lower:.3g} to "
        f"{beyond.upper:.3g})"
    )
    if table.most is not None:
        return [
            f"One generator more would be an approximate symmetry: {measured}, surely more than "
            f"without it, and they are no algebra with a name."
        ]
    if _not_excluded(table, beyond):
        return [f"One generator more is not excluded: {measured}."]
    return [
        f"One generator more would be an approximate symmetry: {measured}, small, but more than "
        f"what the teams have not learned accounts for ({table.visible:.3g})."
    ]


def _decided_by_trial(table: Dimensions, quality: float, trial: Trial, samples: int) -> Verdict:
    tried, found = trial.row, table.count()
    reasons = [
        f"{_asked_on(samples, table)} {_said_of(tried, table)} {_why_not_by_itself(tried, table)}",
        f"Trained on with these {tried.dimension} generators imposed on them, their held-out "
        f"loss fell to {trial.loss:.3g} of what it is without, also after as long a training "
        f"(95 % bootstrap upper bound {trial.upper:.3g}; to be certified it must surely fall to "
        f"{_IMPOSED_LOSS:g}), and both teams together explain {quality:.4f} of the held-out "
        f"variation: so much, at least, of the task has the symmetry.",
    ]
    if found > tried.dimension:
        row = next(row for row in table.rows if row.dimension == found)
        reasons.append(f"These teams show {found - tried.dimension} more. {_said_of(row, table)}")
    reasons += _words_on_unidentified(table)
    return Verdict(
        "certified", None, found, tried.defect, tried.upper, quality, reasons, lower=tried.lower,
        imposed=True, moved=table.moved,
    )  # fmt: skip


def _why_not_by_itself(tried: Row, table: Dimensions) -> str:
    """Why a span that was tried out is not certified by what the teams said of it before."""
    if tried.upper > DEFECT_BOUND:
        return "That is too much to certify it by itself."
    if tried.lower < tried.least:
        why = "" if table.moved else ", where the teams say the opposite of each other"
        return (
            f"It may be far below zero{why}, which does not certify it by itself: it must surely "
            f"be above {tried.least:g} as well."
        )
    if tried.together > DEFECT_BOUND:
        return (
            f"By the mean of both it is up to {tried.together:.3g}, which is too much to certify "
            f"it by itself."
        )
    return "What the teams had learned was not enough to certify it by itself."


def _explained(quality: float) -> str:
    if quality <= 0:
        return "Both teams together explain none of the held-out variation."
    return f"Both teams together explain {quality:.4f} of the held-out variation."


def _asked_on(samples: int, table: Dimensions) -> str:
    halves = ", and each on some that only the other has seen" if table.moved else ""
    return (
        f"Two teams of predictors, trained without augmentation on different halves of the "
        f"training data, were asked on {samples} samples that neither has seen{halves}."
    )


def _words_on_unidentified(table: Dimensions) -> list[str]:
    words = []
    free = len(table.idle) + len(table.generators) + table.leaving + table.left_out
    if table.leaving:
        words.append(
            f"All samples fulfil {table.equations} equation{'s' if table.equations > 1 else ''} up "
            f"to the second degree. {table.leaving} of {free} directions break them, lead to where "
            f"there are no samples, and were not looked at."
        )
    if table.left_out and len(table.rows) >= MOST_ROWS:
        words.append(
            f"Only the likeliest {len(table.rows)} of {free} directions were looked at; more "
            f"would take long. There may be symmetries among the others."
        )
    elif table.left_out:
        words.append(
            f"{table.left_out} of {free} directions were left out, because what was counted with "
            f"them is no algebra with a name: they hardly move the samples, and are known badly. "
            f"There may be symmetries among them."
        )
    if len(table.idle):
        words.append(
            f"{len(table.idle)} of {free} directions move no sample and cannot be identified: the "
            f"generators are known only up to adding them."
        )
    return words


def _said_of(row: Row, table: Dimensions) -> str:
    span = (
        "Along the best direction"
        if row.dimension == 1
        else f"Along the worst direction in the span of {row.dimension} generators"
    )
    below = f" The estimate has no bias; it is {row.defect:.3g}." if row.defect < 0 else ""
    size = f"{at_least_zero(row.defect):.3g}"
    measured = (
        f"predictions for moved samples miss the moved targets by {size} more, in units of what "
        f"the prediction for another sample as far away would"
        if table.moved
        else f"what both predict changes by {size} of how much it changes when each sample moves "
        f"as far in a random direction"
    )
    return (
        f"{span} {measured} (95 % bootstrap bounds {row.lower:.3g} to {row.upper:.3g}; to be "
        f"certified it must surely be below {DEFECT_BOUND:g}).{below}"
    )


def assess(
    along: Float[Tensor, "c n"],
    elsewhere: Float[Tensor, " n"],
    quality: float,
    *,
    free: int,
    n_seeds: int = 1,
    seed: int = 0,
) -> Verdict:
    """Turn measured defects and the predictor's quality into a verdict.

    Parameters
    ----------
    along, elsewhere
        From `defects`.
    quality
        From `quality_of`, on held-out data.
    free
        Number of entries that a generator may have.
    n_seeds
        Number of training runs behind the generators.
    seed
        Of the bootstrap.
    """
    c, n = along.shape
    weights = resample(n, seed)
    compared = (weights @ elsewhere.double()).clamp_min(1e-30)
    ratios = (weights @ along.double().mT) / compared[:, None]
    measured = (along.mean(1) / elsewhere.mean().clamp_min(1e-30)).sqrt()
    worst = int(measured.argmax())
    lower, upper = (float(bound) for bound in bounds(ratios[:, worst].sqrt()))
    evidence = [
        f"On {n} held-out samples the predictor's Lie derivative along the learned "
        f"generator{'s' if c > 1 else ''} is {float(measured[worst]):.3g} of that along random "
        f"ones{' (the worst of them)' if c > 1 else ''}; 95 % bootstrap upper bound {upper:.3g}.",
        f"The predictor explains {quality:.4f} of the held-out variation.",
        BY_CONSTRUCTION,
        f"It rests on {n_seeds} training run{'s' if n_seeds > 1 else ''}; only the identity "
        f"component was tested, no reflections.",
    ]
    if quality < LEAST_QUALITY:
        outcome = "inconclusive"
        reason = (
            f"The predictor explains only {quality:.2f} of the held-out variation. Symmetries of "
            f"a function that has not been learned are meaningless: train longer or change the "
            f"network."
        )
    elif c >= free:
        outcome, reason = "inconclusive", NOTHING_TO_COMPARE
    elif n < LEAST_SAMPLES:
        outcome, reason = "inconclusive", _too_few(n)
    elif lower > _REFUTED_ABOVE:
        outcome = "refuted"
        reason = (
            f"The learned direction is no symmetry of the predictor: its defect is above "
            f"{lower:.2f} with 95 % confidence."
        )
    else:
        outcome, reason = "inconclusive", NOT_CERTIFIED
    return Verdict(
        outcome, None, c, float(measured[worst]), upper, quality, [reason, *evidence], lower=lower
    )
