"""Draw the pictures of docs/concepts.md: python docs/pictures.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from lieaugmenter import ImageAction, SymmetryRegressor, catalogue
from lieaugmenter.lie.elements import Elements
from lieaugmenter.report.paper_figures import png
from lieaugmenter.report.plots import FAINT, INK, PALETTE, QUIET, grid, look, spectrum
from lieaugmenter.runs import write_atomically

IMAGES = Path(__file__).parent / "images"
BLUE, RED, GREEN = PALETTE[0], PALETTE[1], PALETTE[2]


def symmetry() -> Figure:
    """A target that no rotation changes, and one that a rotation does change."""
    figure, axes = grid((7.2, 3.3), 1, 2)
    side = np.linspace(-2.2, 2.2, 200)
    x, y = np.meshgrid(side, side)
    turned = np.linspace(0.3, 2.0, 5)
    cases = [
        ("y = |x|: turning x changes nothing", x**2 + y**2, BLUE),
        ("y = x₁² + 4 x₂²: turning x changes y", x**2 + 4 * y**2, RED),
    ]
    for ax, (title, target, colour) in zip(axes[0], cases, strict=True):
        ax.contour(x, y, np.sqrt(target), levels=8, colors=FAINT, linewidths=1.0)
        ax.plot(1.5 * np.cos(turned), 1.5 * np.sin(turned), "o-", color=colour, ms=6)
        ax.annotate("x", (1.5 * np.cos(0.3), 1.5 * np.sin(0.3)), (8, -4),
                    textcoords="offset points", color=INK)  # fmt: skip
        ax.annotate("g x", (1.5 * np.cos(2.0), 1.5 * np.sin(2.0)), (-22, 4),
                    textcoords="offset points", color=INK)  # fmt: skip
        ax.set(title=title, xlabel="x₁", ylabel="x₂", aspect="equal")
    return figure


def generators() -> Figure:
    """The fields x → Lx of a rotation, a scaling and a shear, and where they carry a sample."""
    figure, axes = grid((9.0, 3.4), 1, 3)
    fields = {
        "rotation": torch.tensor([[0.0, -1.0], [1.0, 0.0]]),
        "scaling": torch.eye(2),
        "shear": torch.tensor([[0.0, 1.4], [0.0, 0.0]]),
    }
    points = np.stack(np.meshgrid(*[np.linspace(-1.6, 1.6, 9)] * 2), -1)
    steps = torch.linspace(0, 1, 30)
    for ax, (name, matrix) in zip(axes[0], fields.items(), strict=True):
        arrows = points @ matrix.numpy().T
        ax.quiver(*np.moveaxis(points, -1, 0), *np.moveaxis(arrows, -1, 0), color=QUIET,
                  angles="xy", scale=22, width=0.005)  # fmt: skip
        start = torch.tensor([0.8, 0.6])
        path = torch.linalg.matrix_exp(steps[:, None, None] * matrix) @ start
        ax.plot(*path.T.numpy(), color=BLUE, lw=2.2)
        ax.plot(*start.numpy(), "o", color=BLUE, ms=6)
        entries = "; ".join(" ".join(f"{v:g}" for v in row) for row in matrix.tolist())
        ax.set(title=f"{name}, L = [{entries}]", xlim=(-2.1, 2.5), ylim=(-2.1, 2.1), aspect="equal")
    return figure


def _box(
    ax: Any, at: tuple[float, float], text: str, colour: str, size: tuple[float, float]
) -> None:
    corner = (at[0] - size[0] / 2, at[1] - size[1] / 2)
    style = "round,pad=0.02,rounding_size=0.08"
    ax.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, fc="white", ec=colour, lw=1.4))
    ax.text(*at, text, ha="center", va="center", color=INK, fontsize=9, linespacing=1.4)


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=QUIET))


def step() -> Figure:
    """One training step: samples and views go through the network; both are compared."""
    figure, axes = grid((9.0, 3.5), 1, 1)
    ax = axes[0, 0]
    wide, tall = (1.7, 0.75), (1.7, 0.75)
    _box(ax, (1.0, 3.0), "sample x, y", QUIET, wide)
    _box(ax, (1.0, 1.0), "generators L\ncoefficients w", GREEN, wide)
    _box(ax, (3.6, 1.0), "K elements\ng = exp(Σ wᵢ Lᵢ)", GREEN, wide)
    _box(ax, (3.6, 2.1), "views g x, g y", GREEN, wide)
    _box(ax, (6.0, 2.55), "network Ψ", BLUE, tall)
    _box(ax, (8.8, 3.0), "prediction\nΨ(x) against y", RED, (2.0, 0.75))
    _box(ax, (8.8, 2.1), "equivariance\nΨ(g x) against g y", RED, (2.0, 0.75))
    _box(ax, (8.8, 1.0), "non-triviality, sparsity:\ng must move x, few entries", RED, (2.4, 0.75))
    for start, end in [
        ((1.9, 3.0), (5.1, 2.7)), ((1.9, 2.9), (2.7, 2.3)), ((1.9, 1.0), (2.7, 1.0)),
        ((3.6, 1.4), (3.6, 1.7)), ((4.5, 2.15), (5.1, 2.4)), ((6.9, 2.65), (7.75, 2.95)),
        ((6.9, 2.45), (7.75, 2.15)), ((4.5, 1.0), (7.55, 1.0)),
    ]:  # fmt: skip
        _arrow(ax, start, end)
    ax.set(xlim=(0, 10.1), ylim=(0.4, 3.6))
    ax.set_axis_off()
    return figure


def left_action() -> Figure:
    """An image and what a quarter turn makes of it."""
    figure, axes = grid((6.6, 2.5), 1, 3)
    image = torch.zeros(1, 1, 21, 21)
    image[..., 3:18, 6:9] = 1
    image[..., 15:18, 6:15] = 1
    turn = catalogue.lift(catalogue.so(2))
    action = ImageAction()
    for ax, angle in zip(axes[0], (0.0, 0.5, np.pi / 2), strict=True):
        elements = Elements(torch.full((1, 1, 1, 1), angle), turn, rows=action.rows)
        moved = action.act(elements, image)[0, 0, 0]
        ax.imshow(moved, cmap="gray_r", vmin=0, vmax=1)
        ax.set(title=f"w = {angle:.2f}", xticks=[], yticks=[])
    return figure


def verdict() -> Figure:
    """How many generators: the defect of the best span of each size, of a real run."""
    x = np.random.default_rng(0).normal(size=(1500, 3))
    y = np.hypot(x[:, 0], x[:, 1]) + 0.1 * x[:, 2] ** 3
    model = SymmetryRegressor(n_generators="auto", hidden=(64, 64), epochs=12, random_state=0)
    return spectrum(model.fit(x, y).findings())


PICTURES = {
    "concept-symmetry": symmetry,
    "concept-generators": generators,
    "concept-step": step,
    "concept-images": left_action,
    "concept-verdict": verdict,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        with look():
            write_atomically(IMAGES / f"{name}.png", png(draw()))


if __name__ == "__main__":
    main()
