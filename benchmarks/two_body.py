"""The demo on three seeds, timed as a user would see it; and on the paper's orbits, if given.

Writes benchmarks/results/two_body.json and the README's picture. The paper's orbits are read from
LIEAUGMENTER_DATA/two_body/two_body_orbits.npz.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from lieaugmenter import SymmetryRegressor
from lieaugmenter.analysis.compare import absolute_cosine
from lieaugmenter.data.dynamics import two_body_from_file
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.heatmaps import Heatmap, heatmaps
from lieaugmenter.report.orbits import orbits
from lieaugmenter.report.plots import FAINT, INK, QUIET, grid, look
from lieaugmenter.runs import RunFolder, environment, write_atomically, write_json

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "two_body.json"
PICTURE = HERE.parent / "docs" / "images" / "two_body.png"


def demo(seed: int, folder: Path) -> dict[str, Any]:
    """`lieaugmenter demo` in a process of its own, start-up and report included."""
    command = [sys.executable, "-m", "lieaugmenter.cli", "demo", "--seed", str(seed)]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "-o", str(folder), "--json"], stdout=subprocess.PIPE, check=True, text=True
    )
    seconds = time.perf_counter() - start
    numbers = json.loads(done.stdout)["numbers"]
    return {
        "seed": seed,
        "seconds": seconds,
        "cosine": numbers["cosine to the true generator"],
        "averaged_mse": numbers["test MSE, averaged over the symmetry"],
        "direct_mse": numbers["test MSE, direct"],
        "defect": numbers["defect on held-out data"],
        "defect_upper": numbers["95 % upper bound"],
    }


def on_reference(path: Path, seed: int) -> dict[str, Any]:
    """The demo's setting on the paper's own orbits."""
    task = two_body_from_file(path)
    start = time.perf_counter()
    model = SymmetryRegressor(
        "mlp",
        output="same",
        blocks=[2] * 4,
        hidden=(128, 128, 128),
        objective=PAPER_TWO_BODY,
        scale=False,
        epochs=100,
        validation=0.05,
        random_state=seed,
        feature_names=list(task.feature_names),
        device="cpu",
    ).fit(task.x_train.numpy(), task.y_train.numpy())
    seconds = time.perf_counter() - start

    def error(views: int) -> float:
        predicted = model.predict(task.x_test.numpy(), views=views)
        return float(np.square(predicted - task.y_test.numpy()).mean())

    learned = torch.from_numpy(model.generators_)
    return {
        "seed": seed,
        "seconds": seconds,
        "samples": [len(task.x_train), len(task.x_test)],
        "cosine": float(absolute_cosine(learned, task.generator).max()),
        "averaged_mse": error(10),
        "direct_mse": error(0),
    }


def tables(findings: Findings) -> Figure:
    """The report's tables of coloured numbers, for a page that can only show pictures."""
    rows = heatmaps(findings)
    with look():
        figure, axes = grid((9.0, 3.2 * len(rows)), len(rows), max(map(len, rows)))
        for line, row in zip(axes, rows, strict=True):
            for ax, table in zip(line, row, strict=True):
                _draw_table(ax, table, named=ax is line[0])
    return figure


def _draw_table(ax: Any, table: Heatmap, *, named: bool) -> None:
    signs = {"plus": 1.0, "minus": -1.0, "zero": 0.0}
    shares = [[signs[cell.sign] * cell.share for cell in row] for row in table.rows]
    ax.imshow(shares, cmap="RdBu_r", vmin=-125, vmax=125)
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row):
            colour = "white" if cell.share > 60 else QUIET
            ax.text(j, i, cell.text, ha="center", va="center", color=colour, fontsize=6.5)
    places = range(len(table.names))
    ax.set_xticks(places, table.names)
    ax.set_yticks(places, table.names if named else [""] * len(table.names))
    ax.set_title(table.title, loc="left", color=INK)
    ax.tick_params(length=0, labelsize=8)
    ax.spines[:].set(visible=True, color=FAINT)


def draw(run: RunFolder, path: Path) -> None:
    """Heat-maps above orbits, as one picture."""
    findings = Findings.load(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, figure in enumerate((tables(findings), orbits(findings))):
        part = path.with_suffix(f".{number}.png")
        figure.savefig(part, dpi=110)
        parts.append(part)
    from PIL import Image

    images = [Image.open(part).convert("RGB") for part in parts]
    width = max(image.width for image in images)
    canvas = Image.new("RGB", (width, sum(image.height for image in images)), "white")
    top = 0
    for image in images:
        canvas.paste(image, ((width - image.width) // 2, top))
        top += image.height
    content = io.BytesIO()
    canvas.quantize(64).save(content, format="PNG", optimize=True)
    write_atomically(path, content.getvalue())
    for part in parts:
        part.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = {seed: Path(temporary) / f"demo-{seed}" for seed in arguments.seeds}
        rows = [demo(seed, folder) for seed, folder in folders.items()]
        draw(RunFolder.open(folders[arguments.seeds[0]]), PICTURE)
    for row in rows:
        print(row)
    content: dict[str, Any] = {"environment": environment(), "demo": rows}
    data = os.environ.get("LIEAUGMENTER_DATA")
    reference = Path(data) / "two_body" / "two_body_orbits.npz" if data else None
    if reference is not None and reference.is_file():
        content["reference_orbits"] = [on_reference(reference, seed) for seed in arguments.seeds]
        for row in content["reference_orbits"]:
            print(row)
    write_json(RESULTS, content)


if __name__ == "__main__":
    main()
