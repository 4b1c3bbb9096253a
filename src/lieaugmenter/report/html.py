"""One self-contained page of what was found: no scripts, no fonts, no pictures from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.compare import match, principal_cosines
from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import write_atomically

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ImportError as error:
    raise ImportError("reports need jinja2: pip install 'lieaugmenter[report]'") from error

from lieaugmenter.report import orbits, plots

_ICONS = {"certified": "✓", "refuted": "✕", "inconclusive": "?"}
# A larger matrix is not read as text.
_LARGEST_TEXT = 32
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Picture:
    """An SVG with the words that stand for it.

    Attributes
    ----------
    svg
        The picture; its text is escaped already.
    alternative
        What it shows, for readers who do not see it.
    caption
        How to read it.
    """

    svg: str
    alternative: str
    caption: str


def render(findings: Findings) -> str:
    """The report as HTML text; the same findings always give the same page.

    Parameters
    ----------
    findings
        What to show. All its strings are taken as plain text.
    """
    template = _environment().get_template("report.html")
    page = template.render(
        findings=findings,
        outcome=_outcome(findings.verdict),
        icon=_ICONS.get(findings.verdict.outcome, "?"),
        facts=_facts(findings.verdict),
        generators=_generators_picture(findings),
        matrices=_matrices(findings),
        motion=_motion_picture(findings),
        training=_training_picture(findings),
        settings=findings.settings,
    )
    # A file cannot hold lone surrogates, which JSON can smuggle in.
    return page.encode("utf-8", "replace").decode("utf-8")


def write_report(findings: Findings, path: str | Path) -> Path:
    """Write the report to a file, whole or not at all.

    Returns
    -------
    Path
        Where it is.
    """
    target = Path(path)
    write_atomically(target, render(findings))
    return target


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lieaugmenter.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["value"] = format_value
    return environment


def format_value(value: Any) -> str:
    """A value for readers: four significant digits, lists in a line, a dash for what is missing.

    >>> format_value(0.123456), format_value(1.5e-7), format_value(2.0), format_value(None)
    ('0.1235', '1.5 × 10⁻⁷', '2', '–')
    >>> format_value({"width": [64, 64]})
    'width: 64, 64'
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {format_value(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value) or "–"
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    digits = f"{value:.4g}"
    if "e" not in digits:
        return digits.replace("-", "−")
    size = abs(value)
    if 1e-4 <= size < 1e6:
        return f"{float(digits):.0f}".replace("-", "−")
    lead, power = digits.split("e")
    return f"{lead} × 10{str(int(power)).translate(_SUPERSCRIPTS)}".replace("-", "−")


def _outcome(verdict: Verdict) -> str:
    """The name of a style; an outcome that this version does not know promises nothing."""
    return verdict.outcome if verdict.outcome in _ICONS else "inconclusive"


def _facts(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Label, value and a remark for each number of the verdict that was measured."""
    facts = [
        ("generators", str(verdict.dimension), "dimension found"),
        ("group", verdict.group or "unnamed", "" if verdict.group else "not identified"),
    ]
    if verdict.defect is not None:
        bound = "0 exact, 1 arbitrary"
        if verdict.upper is not None:
            bound = f"95 % upper bound {format_value(verdict.upper)}"
        facts.append(("defect", format_value(verdict.defect), bound))
    if verdict.quality is not None:
        facts.append(("predictor", format_value(verdict.quality), "quality on held-out data"))
    return facts


def _generators_picture(findings: Findings) -> Picture:
    caption = "Row i, column j: how fast coordinate i changes with coordinate j. "
    if findings.truth is None:
        caption += "No true generator was given to compare with."
    else:
        caption += _agreement(findings.generators, findings.truth)
    count = len(findings.generators)
    alternative = f"Heat-maps of {count} learned generator{'s' if count != 1 else ''}"
    return Picture(plots.svg(plots.generator_heatmaps(findings)), alternative, caption)


def _agreement(learned: Float[Tensor, "c d d"], truth: Float[Tensor, "m d d"]) -> str:
    """How well the spans agree, which does not depend on the bases chosen in them."""
    learned, truth = learned.detach().double().cpu(), truth.detach().double().cpu()
    if not len(learned) or not len(truth) or not bool(learned.isfinite().all()):
        return ""
    words = "Learned generators keep their own size."
    if len(learned) < len(truth):
        words += f" They are fewer than the {len(truth)} true ones, which stand below."
    elif any(sign < 0 for sign in match(learned, truth).signs):
        words += " Signs are those that agree with the true ones; a flipped one is marked −L."
    if len(truth) == 1 and len(learned) == 1:
        return words
    worst = float(principal_cosines(learned, truth).min())
    return (
        f"{words} Smallest principal cosine between the learned and the true span: {worst:.4f}; "
        f"it is 1 if one holds the other, whatever bases were chosen in them."
    )


def _motion_picture(findings: Findings) -> Picture:
    if findings.action == "image":
        caption = "Each row is a sample; the unchanged one stands at w = 0."
    else:
        caption = (
            "Orbits of a few samples. Dots: the samples; arrows: growing w; grey: other samples."
        )
    count = len(findings.generators)
    if count > orbits.MOST_GENERATORS:
        caption += f" The first {orbits.MOST_GENERATORS} of {count} generators are shown."
    alternative = "How samples move under exp(wL)"
    return Picture(plots.svg(orbits.orbits(findings)), alternative, caption)


def _training_picture(findings: Findings) -> Picture:
    epochs = len(findings.history)
    caption = ""
    if epochs:
        caption = (
            f"{epochs} epoch{'s' if epochs != 1 else ''}. Terms are unweighted; values that are "
            f"not above zero do not show on a log scale."
        )
    alternative = "Terms of the objective after every epoch"
    return Picture(plots.svg(plots.loss_curves(findings)), alternative, caption)


def _matrices(findings: Findings) -> list[tuple[str, str]]:
    """Title and text of every matrix, learned ones first; nothing where they are too large."""
    if findings.generators.shape[-1] > _LARGEST_TEXT:
        return []
    names = plots.coordinate_names(findings)
    groups = [("L", "learned", findings.generators)]
    if findings.truth is not None:
        groups.append(("true ", "given", findings.truth))
    return [
        (f"{short}{i + 1}, {origin}", _matrix_text(matrix, names))
        for short, origin, group in groups
        for i, matrix in enumerate(group.detach().double().cpu())
    ]


def _matrix_text(matrix: Float[Tensor, "d d"], names: list[str]) -> str:
    entries = matrix.tolist()
    sizes = [abs(value) for row in entries for value in row if math.isfinite(value)]
    largest = max(sizes, default=0.0)
    form = ".4f" if largest == 0 or 0.01 <= largest < 1e4 else ".3e"
    # -0.0000 would be a sign without a meaning.
    cells = [[f"{value:{form}}".replace("-0.0000", "0.0000") for value in row] for row in entries]
    width = max(len(text) for text in [*names, *(cell for row in cells for cell in row)])
    margin = max(len(name) for name in names)
    lines = ["  ".join([" " * margin, *(name.rjust(width) for name in names)])]
    for name, row in zip(names, cells, strict=True):
        lines.append("  ".join([name.ljust(margin), *(cell.rjust(width) for cell in row)]))
    return "\n".join(lines)
