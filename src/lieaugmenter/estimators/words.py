"""Words for people: the result in two sentences, and as the table that is printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.components import ABSENT, UNCLEAR, UNJUDGED
from lieaugmenter.analysis.identify import Identity
from lieaugmenter.analysis.verdict import Verdict, at_least_zero

# What may be found beyond where a generator holds, what says most first.
_BEYOND = (ABSENT, UNJUDGED, UNCLEAR, None)


def sentence_of_one(
    verdict: Verdict,
    identity: Identity | None,
    *,
    generators: int,
    samples: int,
    names: Sequence[str],
    affine: bool,
) -> str:
    """What a predictor says about a given number of generators it was trained with."""
    many = generators > 1
    named = _named(identity, generators, names, affine=affine)
    return (
        f"On {samples} samples, {generators} generator{'s' if many else ''} of a "
        f"continuous symmetry {'were' if many else 'was'} learned together with a "
        f"predictor; on held-out data the predictor's Lie derivative along "
        f"{'them' if many else 'it'} is {verdict.defect:.2g} of that along a random "
        f"direction (95 % upper bound {verdict.upper:.2g}), and it explains "
        f"{verdict.quality:.3g} of the variation. {named}Only the identity "
        f"component was tested. The verdict is {verdict.outcome}."
    )


def sentence_of_teams(
    verdict: Verdict,
    identity: Identity | None,
    *,
    generators: int,
    samples: int,
    names: Sequence[str],
    affine: bool,
) -> str:
    """What two teams of predictors say about how many generators there are."""
    start = f"On {samples} samples"
    if verdict.outcome == "certified":
        group = with_names(verdict.components, names) if verdict.components else ""
        return (
            f"{start}, a continuous symmetry of dimension {'at least ' if verdict.more else ''}"
            f"{verdict.dimension} is certified{' by imposing it' if verdict.imposed else ''}: "
            f"{_measured_by_teams(verdict)}. "
            f"{_named(identity, generators, names, affine=affine)}{_how_far(verdict)}"
            + (f" Its group is {group}." if group else "")
        )
    if verdict.outcome == "refuted":
        return (
            f"{start} there is no continuous symmetry among those that the action can "
            f"express: {_measured_by_teams(verdict)}."
        )
    return (
        f"{start} it cannot be told whether there is a continuous symmetry: "
        f"{_measured_by_teams(verdict)}."
    )


def _measured_by_teams(verdict: Verdict) -> str:
    teams = f"two teams of predictors trained on disjoint halves explain {verdict.quality:.4f}"
    if verdict.defect is None:
        return f"{teams} of the held-out variation, and have nothing in common"
    if verdict.opposite:
        return (
            f"{teams} of the held-out variation, and say the opposite of each other along the best "
            f"direction"
        )
    defect, upper = (at_least_zero(value) for value in (verdict.defect, verdict.upper or 0.0))
    whose = "of the span" if verdict.dimension else "of the best direction"
    bounds = f"upper bound {upper:.2g}"
    if verdict.lower is not None:
        bounds = f"bounds {at_least_zero(verdict.lower):.2g} to {upper:.2g}"
    other = "another sample as far away" if verdict.moved else "an arbitrary direction"
    meaning = f"95 % {bounds}; 0 for a symmetry, about 1 for {other}"
    if verdict.imposed:
        return (
            f"when it was, the held-out loss of two teams of predictors trained on disjoint halves "
            f"surely fell to half of what it was or less, and they explain {verdict.quality:.4f} "
            f"of the held-out variation; before, the defect {whose} was {defect:.2g} ({meaning})"
        )
    return f"{teams} of the held-out variation, and the defect {whose} is {defect:.2g} ({meaning})"


def _named(
    identity: Identity | None, generators: int, names: Sequence[str], *, affine: bool
) -> str:
    if identity is None or not identity.named:
        return ""
    span = "They span" if generators > 1 else "It spans"
    skewed = " in skewed coordinates" if identity.coordinates == "linear" else ""
    centre = fixed_point(identity.exact) if identity.exact is not None and affine else []
    about = f" about ({', '.join(f'{value:.3g}' for value in centre)})" if centre else ""
    what = with_names(identity.description or identity.name, names)
    return f"{span} {what}{about}{skewed}. "


def fixed_point(generators: Float[Tensor, "c d d"]) -> list[float]:
    """The point that homogeneous generators leave where it is, if there is one and only one.

    >>> turn = torch.tensor([[[0.0, -1.0, 3.0], [1.0, 0.0, -2.0], [0.0, 0.0, 0.0]]])
    >>> fixed_point(turn)
    [2.0, 3.0]
    >>> fixed_point(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
    []
    """
    rows = generators[:, :-1].double().flatten(0, 1)
    linear, shifts = rows[:, :-1], rows[:, -1]
    if int(torch.linalg.matrix_rank(linear, rtol=1e-3)) < linear.shape[1]:
        return []
    point = torch.linalg.lstsq(linear, -shifts).solution
    missed = float((linear @ point + shifts).norm())
    if missed > 1e-3 * float(rows.norm()):
        return []
    # What is left of rounding is no place.
    return torch.where(point.abs() > 1e-6, point, 0.0).tolist()


def with_names(text: str, names: Sequence[str]) -> str:
    """Axes by the names of their features.

    >>> with_names("so(3) on R^3 (axes 0, 2, 3)", ["bx", "t", "by", "bz"])
    'so(3) on R^3 (bx, by, bz)'
    >>> with_names("O(2) with reflection of axis 1", ["x", "t"])
    'O(2) with reflection of t'
    >>> with_names("swap of axes 0 and 1", ["x", "t"])
    'swap of x and t'
    """

    def named(match: re.Match[str]) -> str:
        known = all(int(number) < len(names) for number in re.findall(r"\d+", match[1]))
        return re.sub(r"\d+", lambda m: names[int(m[0])], match[1]) if known else match[0]

    return re.sub(r"\bax[ei]s (\d+(?:(?:, | and )\d+)*)", named, text)


def verdict_with_names(verdict: Verdict, names: Sequence[str]) -> Verdict:
    """A verdict that speaks of features by their names."""
    group = verdict.components
    return replace(
        verdict,
        components=None if group is None else with_names(group, names),
        reasons=[with_names(reason, names) for reason in verdict.reasons],
    )


def _how_far(verdict: Verdict) -> str:
    """How far the generators hold, in a sentence: the one that holds least far decides."""
    if not verdict.holds_until:
        return ""
    extents = zip(verdict.holds_until, verdict.beyond, strict=True)
    until, beyond = min(extents, key=lambda extent: (extent[0] or 0.0, _BEYOND.index(extent[1])))
    if until is None:
        return {
            ABSENT: "It holds near the identity only: the smallest finite elements that were tried "
            "surely change predictions.",
            UNJUDGED: "Finite elements move samples to where there are no data, and were not "
            "judged.",
        }.get(beyond or "", "How far it holds, the held-out samples do not decide.")
    why = {
        ABSENT: "; beyond, it is surely broken",
        UNJUDGED: "; beyond, samples are moved to where there are no data",
        UNCLEAR: "; beyond, the held-out samples do not decide",
    }.get(beyond or "", ", the largest that were asked for")
    return f"It holds for coefficients up to {until:.3g}{why}."


def chosen_by_held_out(*, generators: int, seeds: int) -> str:
    """What the held-out samples decided, so that the loss on them is a little too good.

    >>> chosen_by_held_out(generators=1, seeds=3)
    'averaged or direct predictions, the best of 3 seeds'
    """
    ways = ["averaged or direct predictions"] if generators else []
    runs = [f"the best of {seeds} seeds"] if seeds > 1 else []
    return ", ".join([*ways, *runs])


def lines_of_table(rows: list[dict[str, Any]], agreement: str) -> list[str]:
    """The table of dimensions under its heads; `agreement` says between whom that is."""
    header = (
        f"{'dim':>7}  {'held-out loss':>13}  {'defect':>8}  {'95 % upper':>10}  "
        f"{'closure':>8}  {agreement:>6}"
    )
    lines = [header]
    for row in rows:
        mark = ">>" if row["chosen"] else ""
        lines.append(
            f"{mark:>2}{row['dimension']:>5}  {_shown(row['validation_loss'], '.4g'):>13}  "
            f"{_shown(row['defect']):>8}  {_shown(row['upper']):>10}  "
            f"{_shown(row['closure']):>8}  {_shown(row['seed_agreement']):>6}"
        )
    return lines


def _shown(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)
