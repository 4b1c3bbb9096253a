"""The command that runs discover many times, over a grid of settings and seeds."""

from __future__ import annotations

import io
import signal
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from cyclopts import Parameter

from lieaugmenter.cli.answers import answer, complain
from lieaugmenter.cli.options import Json
from lieaugmenter.cli.program import app, refuse_torchrun
from lieaugmenter.cli.reading import chosen_columns, stream_of
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.learning import TrainingDiverged
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import RunError, RunFolder, WriteError, write_atomically, write_json

if TYPE_CHECKING:
    from lieaugmenter.sweeps import Plan, Sweep, Trial


@app.command
def sweep(
    data: Path | None = None,
    *options: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    grid: Annotated[list[str] | None, Parameter(negative="")] = None,
    seeds: int = 3,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    wait: bool = True,
    retry: Annotated[bool, Parameter(negative="")] = False,
    summary: Path | None = None,
    json: Json = False,
) -> int:
    """Run discover for every setting of a grid and every seed; needs the extra "sweep".

    The same command started again, here or on another machine that shares the folder, is one more
    worker; after a stop it continues. All other options are those of discover, for all trials.

    Parameters
    ----------
    data
        As of discover.
    grid
        An option of discover and its values, such as range=1,2,3; may be given several times.
    seeds
        Number of seeds of each setting, from 0 on.
    out
        Folder of the sweep; sweeps/NAME unless given, after the data.
    wait
        Stay until the trials of other workers are done, and take over those whose workers die.
    retry
        Do failed trials again.
    summary
        Only summarise the sweep of this folder.
    """
    refuse_torchrun("sweep")
    from_folder = _sweeps()
    if summary is not None:
        return _conclude_sweep(from_folder.Sweep(summary), as_json=json)
    if data is None:
        raise ValueError("give the data to sweep over, or --summary FOLDER")
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one is needed")
    plan = from_folder.Plan([str(data.resolve()), *options], _read_grid(grid or []), seeds)
    _check_plan(plan)
    shared = from_folder.Sweep.join(out or Path("sweeps") / data.stem, plan, retry=retry)
    # Batch systems say so before they kill: what is being trained keeps its checkpoint.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        shared.work(lambda trial, folder: _run_trial(plan, trial, folder), wait=wait, say=complain)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; the same command continues, what is done is kept in {shared.path}"
        ) from None
    return _conclude_sweep(shared, as_json=json)


def _sweeps() -> Any:
    """The room of sweeps, or a message that says what it needs."""
    try:
        from lieaugmenter import sweeps
    except ImportError as missing:
        raise RunError(str(missing)) from None
    return sweeps


def _read_grid(given: Sequence[str]) -> dict[str, list[str]]:
    """Options and their values from words such as range=1,2."""
    grid: dict[str, list[str]] = {}
    for word in given:
        name, _, values = word.partition("=")
        name = name.removeprefix("--")
        parts = [value.strip() for value in values.split(",")]
        if not name or not all(parts):
            raise ValueError(f"--grid {word}: write an option and its values, such as range=1,2,3")
        if name in grid or len(set(parts)) < len(parts):
            raise ValueError(f"--grid {word}: give every option, and every value of it, once")
        grid[name] = parts
    return grid


def _check_plan(plan: Plan) -> None:
    """Refuse what discover would refuse, and data that cannot be read, before anything runs."""
    own = {"seed": "--seeds", "out": "--out", "json": "--json", "strict": "no such option"}
    for trial in plan.trials()[: len(plan.settings())]:
        words = ["discover", *plan.options, *trial.words()[:-2]]
        _, asked, _ = app.parse_args(words, exit_on_error=False)
        for name, instead in own.items():
            if name in asked.arguments:
                raise ValueError(f"--{name} differs between trials; a sweep has {instead}")
        settings = asked.arguments
        data, target, size = settings["data"], settings.get("target", "y"), settings.get("size")
        columns = chosen_columns(settings.get("features"), settings.get("drop"))
        if stream_of(data, target, settings.get("stream"), size, columns) is None:
            read_data(data, target, size=size, **columns)


def _run_trial(plan: Plan, trial: Trial, folder: RunFolder) -> float:
    """A trial as the command line would run it, from where another worker left it; its loss."""
    words = ["discover", *plan.options, *trial.words(), "--out", str(folder.path)]
    if folder.config_path.exists():
        words = ["resume", str(folder.path)]
    try:
        with redirect_stdout(io.StringIO()):
            app(words, exit_on_error=False, result_action="return_value")
    except (DataError, WriteError):
        raise
    except (TrainingDiverged, ValueError, MemoryError, torch.OutOfMemoryError) as error:
        raise _sweeps().TrialFailed(str(error)) from error
    table = Findings.load(folder).table
    return float(next(row["validation_loss"] for row in table if row["chosen"]))


def _conclude_sweep(sweep: Sweep, *, as_json: bool) -> int:
    """Write the summary beside the trials, and show it."""
    from lieaugmenter.report import many_runs
    from lieaugmenter.report.paper_figures import png

    rows = sweep.rows()
    content = [row.to_json() for row in rows]
    write_json(sweep.path / "summary.json", content)
    picture = sweep.path / "summary.png"
    write_atomically(picture, png(many_runs.losses(rows)))
    text = "\n".join([*many_runs.table(rows), "", f"picture: {picture}"])
    answer({"folder": str(sweep.path), "settings": content}, as_json=as_json, text=text)
    return 0
