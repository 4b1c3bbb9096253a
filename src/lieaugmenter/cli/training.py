"""Commands that train: demo, discover and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from lieaugmenter.cli.answers import remark
from lieaugmenter.cli.one_run import carry_out, conclude, new_folder, start
from lieaugmenter.cli.options import (
    Action,
    Drop,
    Features,
    Folder,
    Json,
    Output,
    Size,
    Stream,
    Strict,
)
from lieaugmenter.cli.program import app
from lieaugmenter.cli.requests import request_of
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import RunFolder

# What the demo can show, and for how many epochs it trains unless told.
_DEMO_EPOCHS = {"two-body": 100, "digits": 40}


@app.command
def demo(
    task: Literal["two-body", "digits"] = "two-body",
    *,
    out: Folder = None,
    seed: int = 0,
    epochs: int | None = None,
    json: Json = False,
    strict: Strict = False,
) -> int:
    """Discover a rotation on this machine, in orbits or in images, and write a report.

    Parameters
    ----------
    task
        Orbits of two bodies, or the small images of digits that come with scikit-learn.
    seed
        Of the data, the network and the sampled elements.
    epochs
        Length of training; for the orbits 100, which is the paper's, for the digits 40.
    """
    folder = new_folder(out, "demo" if task == "two-body" else f"demo-{task}")
    request = {
        "command": "demo",
        "task": task,
        "seed": seed,
        "epochs": _DEMO_EPOCHS[task] if epochs is None else epochs,
    }
    return start(folder, request, as_json=json, strict=strict)


@app.command
def discover(
    data: Path,
    *,
    target: str = "y",
    features: Features = None,
    drop: Drop = None,
    action: Action = "vector",
    output: Output = "invariant",
    task: Literal["auto", "regression", "classification"] = "auto",
    generators: int | Literal["auto"] | None = None,
    blocks: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    epochs: int | None = None,
    batch_size: int = 64,
    views: int = 10,
    range: float | None = None,
    seeds: int = 1,
    seed: int = 0,
    size: Size = None,
    stream: Stream = None,
    device: str = "auto",
    out: Folder = None,
    json: Json = False,
    strict: Strict = False,
) -> int:
    """Find the symmetry of a data set.

    Parameters
    ----------
    data
        An .npz with X and the target, a .csv, .tsv or .parquet table, an .npy with X, or a folder,
        .zip or .tar of class folders of images.
    target
        Name of the target array or column; several columns separated by commas. For an .npy the
        other .npy, with the targets.
    action
        How elements move X.
    output
        How the target moves: not at all, the same as X, or as a vector of the space, which turns
        with X but is not translated (forces, a dipole).
    task
        Regression or classification; by the target's type unless given.
    generators
        Number of generators to look for; auto finds out how many there are, none included. Unless
        given: auto, but 1 for images, on which networks seldom learn enough to count them.
    blocks
        Sizes of blocks of features that may mix, for example 2 2 2 2.
    epochs
        Length of training; unless given 50, or as many as 1,500 steps take.
    batch_size
        Samples of a step, of all processes together.
    views
        Transformed copies of each sample.
    range
        Largest coefficient; 0.3 for four-momenta and 2 for all others unless given.
    seeds
        Number of training runs.
    seed
        Of the first of them.
    device
        auto, cpu or cuda.
    """
    folder = new_folder(out, data.stem)
    usual = 1 if action == "image" else "auto"
    request = {
        "command": "discover",
        "data": str(data.resolve()),
        "target": str(Path(target).resolve()) if data.suffix == ".npy" else target,
        "task": task,
        "size": size,
        "features": features,
        "drop": drop,
        "stream": stream,
        "parameters": {
            "action": action,
            "output": output,
            "n_generators": usual if generators is None else generators,
            "blocks": blocks,
            "epochs": epochs,
            "batch_size": batch_size,
            "n_views": views,
            "range": range,
            "n_seeds": seeds,
            "random_state": seed,
            "device": device,
        },
    }
    return start(folder, request, as_json=json, strict=strict)


@app.command
def resume(run: Path, *, json: Json = False, strict: Strict = False) -> int:
    """Continue a run that was interrupted.

    Parameters
    ----------
    run
        The run folder.
    """
    folder = RunFolder(run)
    if not folder.config_path.exists() and (run / "command.json").exists():
        # Killed before it had begun to learn.
        return carry_out(folder, request_of(folder), resume=False, as_json=json, strict=strict)
    folder = RunFolder.open(run)
    if folder.finished:
        remark(f"{run} is finished; nothing to do")
        return conclude(Findings.load(folder), folder, as_json=json, strict=strict)
    return carry_out(folder, request_of(folder), resume=True, as_json=json, strict=strict)
