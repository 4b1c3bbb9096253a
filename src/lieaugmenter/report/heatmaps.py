"""Generators as tables of coloured numbers, beside what they should be where that is known."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.compare import absolute_cosine, match, nearest_in_span
from lieaugmenter.report import plots
from lieaugmenter.report.findings import Findings

_MOST_HEATMAPS = 12
# Above these sizes numbers, or cells of their own, are too small to be looked at.
_LARGEST_WITH_NUMBERS = 10
_LARGEST_WITH_CELLS = 12


@dataclass(frozen=True)
class Cell:
    """An entry of a matrix.

    Attributes
    ----------
    text
        Its value, empty in large matrices.
    share
        Its size, in hundredths of the largest.
    sign
        ``"plus"``, ``"minus"`` or ``"zero"``.
    """

    text: str
    share: int
    sign: str


@dataclass(frozen=True)
class Heatmap:
    """A matrix to look at.

    Attributes
    ----------
    title
        Whose it is.
    names
        Of its rows and columns.
    rows
        Its cells; none where it is too large for cells of their own.
    picture
        Instead of cells, an image of one pixel an entry as a data address.
    """

    title: str
    names: list[str]
    rows: list[list[Cell]]
    picture: str


def heatmaps(findings: Findings) -> list[list[Heatmap]]:
    """Each generator, beside the true, the nearest exact or the nearest learned one, and the
    difference.

    Where the truth is known, learned generators are put in its order and sign; their size is left
    alone. Those that were made exact go by the names that they have everywhere. All maps share one
    scale of colours, so that a small difference looks pale.
    """
    if not len(findings.generators):
        return []
    rows = _matrices(findings)[:_MOST_HEATMAPS]
    finite = torch.stack([matrix for row in rows for _, matrix in row]).nan_to_num(0, 0, 0)
    limit = float(finite.abs().max()) or 1.0
    names = plots.coordinate_names(findings)
    return [[_heatmap(title, matrix, names, limit) for title, matrix in row] for row in rows]


def _matrices(findings: Findings) -> list[list[tuple[str, Tensor]]]:
    """Titles and matrices, a list for each row of maps."""
    learned = findings.as_learned.detach().double().cpu()
    alone = [[(f"L{i + 1}, learned", matrix)] for i, matrix in enumerate(learned)]
    if findings.truth is not None:
        return _beside_truth(alone, learned, findings.truth.detach().double().cpu())
    if findings.exact is None or not bool(learned.isfinite().all()):
        return [[matrix for row in alone for matrix in row]]
    if findings.made_exact:
        used = findings.generators.detach().double().cpu()
        alone = [[(f"L{i + 1}, exact", matrix)] for i, matrix in enumerate(used)]
        return _beside(alone, used, "nearest learned", learned)
    name = (findings.algebra or {}).get("name", "the named algebra")
    exact = findings.exact.detach().double().cpu()
    return _beside(alone, learned, f"nearest in {name}", exact)


def _beside(
    alone: list[list[tuple[str, Tensor]]],
    shown: Float[Tensor, "c d d"],
    title: str,
    span: Float[Tensor, "k d d"],
) -> list[list[tuple[str, Tensor]]]:
    """Each matrix beside the nearest in a span."""
    nearest = nearest_in_span(shown, span)
    cosines = absolute_cosine(shown, nearest).tolist()
    return [
        [*row, (title, near), (_difference(cosine), row[0][1] - near)]
        for row, near, cosine in zip(alone, nearest, cosines, strict=True)
    ]


def _beside_truth(
    alone: list[list[tuple[str, Tensor]]],
    learned: Float[Tensor, "c d d"],
    truth: Float[Tensor, "m d d"],
) -> list[list[tuple[str, Tensor]]]:
    if len(learned) < len(truth):
        known = [(f"true {i + 1} of {len(truth)}", matrix) for i, matrix in enumerate(truth)]
        return [[matrix for row in alone for matrix in row], known]
    matching = match(learned, truth)
    pairs = zip(
        matching.order, matching.signs, matching.cosines, matching.generators, truth, strict=True
    )
    rows = [
        [
            (f"{'−' if sign < 0 else ''}L{index + 1}, learned", matrix),
            ("true", known),
            (_difference(cosine), matrix - known),
        ]
        for index, sign, cosine, matrix, known in pairs
    ]
    return rows + [row for i, row in enumerate(alone) if i not in matching.order]


def _difference(cosine: float) -> str:
    return f"difference · cosine {cosine:.4f}"


def _heatmap(title: str, matrix: Float[Tensor, "d d"], names: list[str], limit: float) -> Heatmap:
    d = len(matrix)
    if d > _LARGEST_WITH_CELLS:
        data = base64.b64encode(plots.matrix_png(matrix, limit)).decode()
        return Heatmap(title, names, [], f"data:image/png;base64,{data}")
    with_numbers = d <= _LARGEST_WITH_NUMBERS
    rows = [[_cell(value, limit, with_numbers) for value in row] for row in matrix.tolist()]
    return Heatmap(title, names, rows, "")


def _cell(value: float, limit: float, with_numbers: bool) -> Cell:
    if value != value or abs(value) == float("inf"):
        return Cell("–", 0, "zero")
    text, share = _written(value, limit), round(100 * abs(value) / limit)
    sign = "zero" if text == "0" else "plus" if value > 0 else "minus"
    return Cell(text if with_numbers else "", share, sign)


def _written(value: float, limit: float) -> str:
    if abs(value) < 0.005 * min(limit, 1.0):
        return "0"
    usual = 0.1 <= limit < 100
    return (f"{value:.2f}" if usual else f"{value:.1e}").replace("-", "−")
