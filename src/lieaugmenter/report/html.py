"""One self-contained page of what was found: no fonts, scripts or pictures from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.compare import match, principal_cosines
from lieaugmenter.analysis.verdict import Verdict, at_least_zero
from lieaugmenter.lie.brackets import (
    closure_residual,
    killing_form,
    orthonormal,
    structure_constants,
)
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.sweep import MOST_GENERATORS
from lieaugmenter.runs import write_atomically

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ImportError as error:
    raise ImportError("reports need jinja2: pip install 'lieaugmenter[report]'") from error

from lieaugmenter.report import orbits, plots
from lieaugmenter.report.heatmaps import heatmaps

_ICONS = {"certified": "✓", "refuted": "✕", "inconclusive": "?"}
# A larger matrix is not read as text.
_LARGEST_TEXT = 32
_MOST_TEXTS = 12
_MOST_BRACKETS = 28
_MOST_RATES = 8
# Coefficients of brackets below this share of the largest are noise to a reader.
_LEAST_CONSTANT = 0.05
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
# Columns of the table over dimensions: the key of a row, and what it is called.
_COLUMNS = {
    "dimension": "generators",
    "group": "group",
    "validation_loss": "held-out loss",
    "change": "against none",
    "defect": "defect",
    "upper": "95 % upper bound",
    "closure": "closure",
    "seed_agreement": "agreement",
}


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
    environment = _environment()
    found = bool(len(findings.generators))
    page = environment.get_template("report.html").render(
        findings=findings,
        found=found,
        outcome=_outcome(findings.verdict),
        icon=_ICONS.get(findings.verdict.outcome, "?"),
        facts=_facts(findings),
        columns=_columns(findings.table),
        rows=_with_change(findings.table),
        chosen=_chosen(findings),
        spectrum=_spectrum_picture(findings),
        sweep=None if findings.sweep is None else _sweep_data(findings),
        script=_script(environment),
        heatmaps=heatmaps(findings),
        agreement=_agreement_caption(findings),
        matrices=_matrices(findings),
        motion=_motion_picture(findings) if found else None,
        departure=_departure_picture(findings) if found else None,
        algebra=_algebra(findings) if found else None,
        training=_training_picture(findings),
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


def format_value(value: Any, digits: int = 4) -> str:
    """A value for readers: a few significant digits, lists in a line, a dash for what is missing.

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
    return _number(value, digits) if isinstance(value, float) else str(value)


def _number(value: float, significant: int) -> str:
    if not math.isfinite(value):
        return "–"
    digits = f"{value:.{significant}g}"
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


def _facts(findings: Findings) -> list[tuple[str, str, str]]:
    """Label, value and a remark for each number of the verdict that was measured."""
    verdict = findings.verdict
    remark = "or more: one more is not excluded" if verdict.more else "dimension found"
    facts = [("generators", str(verdict.dimension), remark)]
    if verdict.dimension:
        remark = "" if verdict.group else "not identified"
        facts.append(("group", verdict.group or "unnamed", remark))
    if verdict.opposite:
        facts.append(("defect", "–", "the teams say the opposite of each other"))
    elif verdict.defect is not None:
        bound = "0 exact, 1 arbitrary"
        if verdict.upper is not None:
            bound = f"95 % upper bound {format_value(at_least_zero(verdict.upper))}"
        label = "defect before" if verdict.imposed else "defect"
        facts.append((label, format_value(at_least_zero(verdict.defect)), bound))
    if verdict.quality is not None:
        whose = "teams" if findings.spectrum else "predictor"
        remark = "of held-out variation explained"
        if whose == "predictor" and len(findings.seeds) > 1:
            remark += ", the best seed chosen on these samples"
        facts.append((whose, format_value(verdict.quality), remark))
    return facts


def _columns(table: list[dict[str, Any]]) -> dict[str, str]:
    """The columns that hold something in any row."""
    rows = _with_change(table)
    return {
        key: title
        for key, title in _COLUMNS.items()
        if any(row.get(key) is not None for row in rows)
    }


def _with_change(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with how their loss compares to that of no generators, in per cent."""
    none = next((row.get("validation_loss") for row in table if row.get("dimension") == 0), None)
    return [row | {"change": _change(row, none)} for row in table]


def _change(row: dict[str, Any], none: float | None) -> str | None:
    loss = row.get("validation_loss")
    if none is None or loss is None or row.get("dimension") == 0 or not none > 0:
        return None
    return f"{100 * (loss / none - 1):+.0f} %".replace("-", "−")


def _chosen(findings: Findings) -> int:
    """The dimension that was settled on."""
    marked = [row["dimension"] for row in findings.table if row.get("chosen")]
    return marked[0] if marked else len(findings.generators)


def _spectrum_picture(findings: Findings) -> Picture | None:
    if not any(row.get("defect") is not None for row in findings.spectrum or findings.table):
        return None
    one = "another sample as far away" if findings.verdict.moved else "an arbitrary direction"
    caption = (
        f"0 is exact, 1 {one}. Filled: surely a symmetry, neither above the bound "
        "nor clearly apart from zero. Whiskers: 95 % bounds."
    )
    if findings.departure is not None and not findings.verdict.moved:
        caption += " Band: single random directions."
    return Picture(plots.svg(plots.spectrum(findings)), "Defect against dimension", caption)


def _sweep_data(findings: Findings) -> Markup:
    """What the slider needs, as JSON that cannot end the element that holds it."""
    assert findings.sweep is not None  # asked by the caller
    names = [str(name) for name in findings.feature_names]
    text = json.dumps(findings.sweep.payload(names), ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@dataclass(frozen=True)
class Script:
    """The page's script, and the digest by which the page lets it run and no other."""

    text: Markup
    digest: str


def _script(environment: Environment) -> Script:
    assert environment.loader is not None  # given in _environment
    text = environment.loader.get_source(environment, "report.js")[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Script(Markup(text), digest)


def _departure_picture(findings: Findings) -> Picture | None:
    if findings.departure is None:
        return None
    caption = (
        "How far predictions for moved samples are from what the symmetry asks for. Grey: random "
        "generators of the same size, their median and range."
    )
    alternative = "Departure from the symmetry against the size of the element"
    return Picture(plots.svg(plots.departure_curves(findings)), alternative, caption)


def _agreement_caption(findings: Findings) -> str:
    caption = "Row i, column j: how fast coordinate i changes with coordinate j. "
    if findings.truth is not None:
        return caption + _agreement(findings.as_learned, findings.truth)
    if findings.exact is not None:
        cosine = (findings.algebra or {}).get("cosine")
        span = "" if cosine is None else f" Smallest principal cosine of both: {cosine:.4f}."
        where = "what was learned" if findings.made_exact else "the exact algebra"
        return f"{caption}Beside each, the nearest matrix in {where}.{span}"
    return caption + "No true generator was given to compare with."


@dataclass(frozen=True)
class Algebra:
    """What generators do to each other.

    Attributes
    ----------
    facts
        Label and value.
    rates
        Name and eigenvalues of each generator.
    brackets
        Both sides of each bracket.
    left_out
        How many brackets are not shown.
    killing
        Eigenvalues of the Killing form: text, size in hundredths of the largest, sign.
    """

    facts: list[tuple[str, str]]
    rates: list[tuple[str, str]]
    brackets: list[tuple[str, str]]
    left_out: int
    killing: list[tuple[str, int, str]]


def _algebra(findings: Findings) -> Algebra | None:
    generators = findings.generators.detach().double().cpu()
    if not bool(generators.isfinite().all()) or not bool((generators != 0).any()):
        return None
    constants = structure_constants(generators)
    largest = float(constants.abs().max())
    c = len(generators)
    pairs = [(i, j) for i in range(c) for j in range(i + 1, c)]
    brackets = [
        (f"[{_name(i)}, {_name(j)}]", _combination(constants[i, j].tolist(), largest))
        for i, j in pairs[:_MOST_BRACKETS]
    ]
    rates = [(_name(i), _rates(matrix)) for i, matrix in enumerate(generators[:MOST_GENERATORS])]
    left_out = len(pairs) - len(brackets)
    return Algebra(_algebra_facts(findings), rates, brackets, left_out, _killing(generators))


def _algebra_facts(findings: Findings) -> list[tuple[str, str]]:
    closure = closure_residual(findings.generators.detach().double().cpu())
    facts = [("brackets leave the span by", format_value(round(closure, 6)))]
    known = findings.algebra
    if known is None:
        return facts
    evidence = known["invariants"]
    signs = evidence["killing_signature"]
    facts = [("algebra", known["name"]), *facts]
    if known.get("description"):
        facts.append(("where", known["description"]))
    facts += [
        ("kind", evidence["kind"]),
        ("rank", format_value(evidence["rank"])),
        ("compact", format_value(evidence["compact"])),
        ("Killing form", "{} negative, {} zero, {} positive".format(*signs)),
    ]
    if evidence.get("metric_signature"):
        facts.append(
            (
                "preserved form",
                "{} negative, {} zero, {} positive".format(*evidence["metric_signature"]),
            )
        )
    near = [f"{name} ({far:.2f})" for name, far in known.get("alternatives", [])[:3]]
    if near:
        facts.append(("next nearest", ", ".join(near)))
    return facts


def _name(index: int) -> str:
    return f"L{str(index + 1).translate(_SUBSCRIPTS)}"


def _combination(coefficients: list[float], largest: float) -> str:
    """Σ f_k L_k as text, terms below the noise left out.

    >>> _combination([0.0, -1.414, 0.001], 1.414)
    '−1.41 L₂'
    """
    least = max(_LEAST_CONSTANT * largest, 1e-6)
    terms = [(f, k) for k, f in enumerate(coefficients) if abs(f) > least]
    text = " ".join(f"{'−' if f < 0 else '+'} {abs(f):.3g} {_name(k)}" for f, k in terms)
    return "−" * text.startswith("−") + text[2:] if text else "0"


def _rates(generator: Float[Tensor, "d d"]) -> str:
    """Eigenvalues: imaginary ones turn, real ones grow; conjugate pairs in one."""
    values = torch.linalg.eigvals(generator).tolist()
    small = 1e-2 * max((abs(value) for value in values), default=0.0)
    words = []
    for value in sorted(values, key=lambda v: (-abs(v.imag), -v.real)):
        if value.imag < -small:
            continue
        real = f"{value.real:.2f}".replace("-", "−") if abs(value.real) > small else ""
        if value.imag > small:
            words.append(f"{real} ± {value.imag:.2f}i".strip())
        else:
            words.append(real or "0")
    counts = {word: words.count(word) for word in words}
    shown = [word if n == 1 else f"{word} (×{n})" for word, n in counts.items()]
    return ", ".join(shown[:_MOST_RATES] + ["…"] * (len(shown) > _MOST_RATES))


def _killing(generators: Float[Tensor, "c d d"]) -> list[tuple[str, int, str]]:
    values = torch.linalg.eigvalsh(killing_form(orthonormal(generators))).tolist()
    largest = max((abs(value) for value in values), default=0.0) or 1.0
    return [
        (
            format_value(round(value, 3) + 0.0),
            round(100 * abs(value) / largest) if abs(value) > 1e-4 else 0,
            "minus" if value < 0 else "plus",
        )
        for value in values
    ]


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
    if count > MOST_GENERATORS:
        caption += f" The first {MOST_GENERATORS} of {count} generators are shown."
    alternative = "How samples move under exp(wL)"
    return Picture(plots.svg(orbits.orbits(findings)), alternative, caption)


def _training_picture(findings: Findings) -> Picture:
    epochs = len(findings.history)
    caption = ""
    if epochs:
        caption = (
            f"{epochs} epoch{'s' if epochs != 1 else ''}. Terms are unweighted and in the units of "
            f"training; values that are not above zero do not show on a log scale."
        )
    alternative = "Terms of the objective after every epoch"
    return Picture(plots.svg(plots.loss_curves(findings)), alternative, caption)


def _matrices(findings: Findings) -> list[tuple[str, str]]:
    """Title and text of the first matrices; nothing if they are too large."""
    if findings.generators.shape[-1] > _LARGEST_TEXT:
        return []
    names = plots.coordinate_names(findings)
    groups = [("L", "learned", findings.generators)]
    if findings.made_exact:
        groups = [
            ("L", "exact, as it is used", findings.generators),
            ("learned ", "from which they were made exact", findings.as_learned),
        ]
    if findings.truth is not None:
        groups.append(("true ", "given", findings.truth))
    return [
        (f"{short}{i + 1}, {origin}", _matrix_text(matrix, names))
        for short, origin, group in groups
        for i, matrix in enumerate(group.detach().double().cpu()[:_MOST_TEXTS])
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
