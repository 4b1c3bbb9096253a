"""What came of the settings of a sweep: a table for the terminal, and a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lieaugmenter.report.plots import PALETTE, QUIET, grid, log_axis, look
from lieaugmenter.sweeps import Row

# Losses further apart than this are drawn on a logarithmic axis.
_WIDE = 30.0


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of text: each setting with its validation loss over seeds; the lowest is marked.

    Parameters
    ----------
    rows
        As `Sweep.rows` returns them.
    """
    best = _best(rows)
    cells = [["", "setting", "validation loss", "seeds", "verdicts"]]
    for row in rows:
        open_ = row.running + row.waiting
        counts = [(len(row.failed), "failed"), (open_, "not done")]
        beside = "".join(f", {count} {word}" for count, word in counts if count)
        verdicts = ", ".join(f"{count} × {verdict}" for verdict, count in row.verdicts.items())
        cells.append(
            [">>" if row is best else "", _name(row), _spread(row), f"{len(row.losses)}{beside}",
             verdicts or "–"]
        )  # fmt: skip
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    failures = [f"failed: {_name(row)}, {message}" for row in rows for message in row.failed]
    return [line.rstrip() for line in lines] + failures


def losses(rows: Sequence[Row]) -> Figure:
    """The validation losses of each setting: a dot for each seed, and mean ± standard deviation.

    Parameters
    ----------
    rows
        As `Sweep.rows` returns them.
    """
    with look():
        figure, axes = grid((6.4, 1.1 + 0.38 * len(rows)), 1, 1)
        ax = axes[0, 0]
        best = _best(rows)
        for place, row in enumerate(rows):
            if row.mean is None:
                continue
            colour = PALETTE[1] if row is best else PALETTE[0]
            values = list(row.losses.values())
            ax.plot(values, [place] * len(values), "o", ms=4, mec="none", alpha=0.45, color=colour)
            ax.errorbar(row.mean, place, xerr=row.std, fmt="|", ms=11, capsize=3, color=colour)
        _note_failures(ax, rows)
        ax.set_yticks(range(len(rows)), [_name(row) for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel("validation loss")
        found = [value for row in rows for value in row.losses.values()]
        if found and min(found) > 0 and max(found) / min(found) > _WIDE:
            log_axis(ax, np.array(found), "x")
        else:
            ax.grid(axis="x", lw=0.5, alpha=0.5)
        return figure


def _note_failures(ax: Axes, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        if row.failed:
            ax.annotate(
                f"{len(row.failed)} failed", (1.0, place), xycoords=("axes fraction", "data"),
                ha="left", va="center", xytext=(4, 0), textcoords="offset points", color=QUIET,
            )  # fmt: skip


def _best(rows: Sequence[Row]) -> Row | None:
    """The setting of the lowest mean; None where there is nothing to choose from."""
    done = [row for row in rows if row.mean is not None]
    return min(done, key=lambda row: row.mean or 0.0) if len(done) > 1 else None


def _name(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.setting.items()) or "as given"


def _spread(row: Row) -> str:
    return "–" if row.mean is None else f"{row.mean:.4g} ± {row.std:.2g}"
