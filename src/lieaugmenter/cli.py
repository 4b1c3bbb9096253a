"""The command line: demo, discover, resume, report, export, doctor, check, reproduce, sweep.

Results go to standard output, progress to standard error. Exit codes: 0 done, 1 a check above its
limit, 2 bad input (one message, never a traceback), 3 inconclusive with --strict, 4 stopped by
--time-limit (the same command continues), 130 interrupted.
"""

from __future__ import annotations

import io
import json as jsonlib
import re
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, TypedDict, get_type_hints

import numpy as np
import torch
from torch import Tensor

try:
    from cyclopts import App, CycloptsError, Parameter
    from rich.console import Console
except ImportError:
    sys.exit("the command line needs: pip install 'lieaugmenter[cli]'")

import lieaugmenter
from lieaugmenter.analysis.audit import audit
from lieaugmenter.analysis.compare import absolute_cosine, frobenius_projection
from lieaugmenter.analysis.models import load_model
from lieaugmenter.data.checkup import Note, Survey, examine, non_finite_message
from lieaugmenter.data.dynamics import FEATURES, TwoBody, two_body
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.data.images import digits
from lieaugmenter.data.streaming import STREAMED, FileStream, is_large, stream_data
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.catalogue import EXPERIMENTS, find_experiment
from lieaugmenter.experiments.results import summary, write_results
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.export import manifest_of_run, save_manifest
from lieaugmenter.learning import Objective, TrainingDiverged
from lieaugmenter.learning.augmenter import make_action, make_output
from lieaugmenter.learning.distributed import joined
from lieaugmenter.learning.engine import TimeIsUp
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.nets import CNN
from lieaugmenter.processes import (
    is_lost_connection,
    number_from_first,
    process_count,
    process_number,
    wait_for_all,
)
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import write_report
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    WriteError,
    fields_of,
    in_short,
    read_json,
    write_atomically,
    write_json,
)

if TYPE_CHECKING:
    from lieaugmenter.sweeps import Plan, Sweep, Trial

ABOVE_LIMIT = 1
BAD_INPUT = 2
INCONCLUSIVE = 3
STOPPED = 4
INTERRUPTED = 130
# More whole numbers than this may be quantities as well as labels: the user is asked.
_MOST_CLASSES = 30
# Cosine above which the demo says that the true generator was found.
_RECOVERED = 0.99

app = App(
    name="lieaugmenter",
    help="Discover the continuous symmetry of a task, with a predictor that respects it.",
    version=lieaugmenter.__version__,
    # main() says how to continue.
    suppress_keyboard_interrupt=False,
)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the result as JSON.")]
Strict = Annotated[
    bool, Parameter(negative="", help="Exit with 3 when the verdict is inconclusive.")
]
Folder = Annotated[
    Path | None,
    Parameter(name=["--out", "-o"], help="Run folder; a new one in runs/ if not given."),
]
Size = Annotated[
    int | None, Parameter(help="Side in pixels to resize images to; they must be of one size else.")
]
Stream = Annotated[
    bool | None,
    Parameter(
        help="Read the file piece by piece instead of whole; unless given, an .npy, and a .parquet "
        "that holds more than 1 GiB."
    ),
]
Action = Literal["vector", "points", "affine", "fourvector", "image"]
# What the demo can show, and for how many epochs it trains unless told.
_DEMO_EPOCHS = {"two-body": 100, "digits": 40}
# The paper's weights for images, but a tenth of its similarity: while the range is small it weighs
# up to a hundred times as much, and on 8 × 8 pixels it would then lead to a shear.
_DIGITS = Objective(
    prediction=1.0, equivariance=7.0, similarity=0.01, sparsity=1e-2, alignment=0.0, proximity=0.0
)


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
    folder = _new_folder(out, "demo" if task == "two-body" else f"demo-{task}")
    request = {
        "command": "demo",
        "task": task,
        "seed": seed,
        "epochs": _DEMO_EPOCHS[task] if epochs is None else epochs,
    }
    return _start(folder, request, as_json=json, strict=strict)


@app.command
def discover(
    data: Path,
    *,
    target: str = "y",
    action: Action = "vector",
    output: Literal["invariant", "same"] = "invariant",
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
        An .npz with X and the target, a .csv or .parquet table, an .npy with X, or a folder, .zip
        or .tar of class folders of images.
    target
        Name of the target array or column; several columns separated by commas. For an .npy the
        other .npy, with the targets.
    action
        How elements move X.
    output
        Whether the target stays or moves with X.
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
    folder = _new_folder(out, data.stem)
    usual = 1 if action == "image" else "auto"
    request = {
        "command": "discover",
        "data": str(data.resolve()),
        "target": str(Path(target).resolve()) if data.suffix == ".npy" else target,
        "task": task,
        "size": size,
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
    return _start(folder, request, as_json=json, strict=strict)


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
        return _run(folder, _request_of(folder), resume=False, as_json=json, strict=strict)
    folder = RunFolder.open(run)
    if folder.finished:
        _remark(f"{run} is finished; nothing to do")
        return _conclude(Findings.load(folder), folder, as_json=json, strict=strict)
    return _run(folder, _request_of(folder), resume=True, as_json=json, strict=strict)


@app.command
def report(
    run: Path,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    json: Json = False,
) -> int:
    """Write the report of a finished run again.

    Parameters
    ----------
    run
        The run folder.
    out
        The .html file; report.html in the run folder unless given.
    """
    folder = _finished(run)
    path = write_report(Findings.load(folder), out or folder.path / "report.html")
    _answer({"report": str(path)}, as_json=json, text=f"report: {path}")
    return 0


@app.command
def export(
    run: Path,
    *,
    to: Literal["json", "latex", "sympy"] = "json",
    learned: Annotated[bool, Parameter(negative="")] = False,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    json: Json = False,
) -> int:
    """Print what a finished run found in another form, or write it to a file.

    Parameters
    ----------
    run
        The run folder.
    to
        A manifest in JSON, a table for a LaTeX document, or matrices of SymPy.
    learned
        Formulas of the generators as learned, also where the algebra has a name.
    out
        The file. A manifest is two: its tensors lie beside it as .safetensors.
    """
    manifest = manifest_of_run(_finished(run))
    content = manifest.export(to, **({"exact": False} if learned and to != "json" else {}))
    text = jsonlib.dumps(content, indent=2, ensure_ascii=False) if to == "json" else str(content)
    if out is None:
        # Not on the console, which would take a name between colons for an emoji.
        print(jsonlib.dumps({to: text}) if json and to != "json" else text)
        return 0
    if to == "json":
        out = save_manifest(manifest, out)
    else:
        write_atomically(out, text + "\n")
    _answer({"export": str(out)}, as_json=json, text=f"export: {out}")
    return 0


@app.command
def doctor(
    data: Path,
    *,
    target: str = "y",
    size: Size = None,
    stream: Stream = None,
    json: Json = False,
) -> int:
    """Look at a data set before learning from it: shapes, rank, scaling, what fits.

    Parameters
    ----------
    data
        An .npz with X and the target, a .csv or .parquet table, an .npy with X, or a folder, .zip
        or .tar of class folders of images.
    target
        Name of the target array or column; for an .npy the other .npy, with the targets.
    """
    pieces = _stream_of(data, target, stream, size)
    if pieces is not None:
        x_shape, y_shape, types, task, notes = _look_through(pieces)
    else:
        table = read_data(data, target, size=size)
        x_shape, y_shape = table.x.shape, table.y.shape
        types = (str(table.x.dtype), str(table.y.dtype))
        task = _task_or_question(table.y)
        notes = examine(table.x, table.y, table.feature_names)
    actions = _fitting_actions(x_shape)
    facts = {
        "X": {"shape": list(x_shape), "dtype": types[0]},
        target: {"shape": list(y_shape), "dtype": types[1]},
        "task": task,
        "actions": actions,
        "notes": [asdict(note) for note in notes],
    }
    lines = [
        f"X: {x_shape} {types[0]}   {target}: {y_shape} {types[1]}",
        f"task: {facts['task']}   actions that fit: {', '.join(actions)}",
        *(f"{note.level}: {note.text}" for note in notes),
    ]
    if not notes:
        lines.append("nothing to remark")
    _answer(facts, as_json=json, text="\n".join(lines))
    return BAD_INPUT if any(note.level == "error" for note in notes) else 0


@app.command
def check(
    model: str,
    data: Path,
    *,
    group: str,
    axes: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    target: str | None = None,
    action: Action = "vector",
    output: Literal["invariant", "same"] = "invariant",
    worst: int = 5,
    fail_above: float | None = None,
    seed: int = 0,
    size: Size = None,
    json: Json = False,
) -> int:
    """Measure how equivariant a trained model is under a group.

    Parameters
    ----------
    model
        A TorchScript file, a run folder, or file.py:name, which runs that file.
    data
        Samples: an .npz with X, a .csv or .parquet table, or class folders of images.
    group
        Such as "so(3)", "se(3)" or "so(1,3)"; or a run folder, or a .json with generators.
    axes
        The coordinates that it moves, all unless given; several times as many as it needs for
        vectors that move alike.
    target
        Columns to leave out; all columns are inputs without it.
    action
        How elements move X.
    output
        Whether the model's outputs stay or move with X.
    worst
        How many of the worst samples to list.
    fail_above
        Exit with 1 when the largest defect is above this.
    seed
        Of the random generators that it is compared with, and of the bootstrap.
    """
    table = read_data(data, target, size=size)
    trouble = non_finite_message(table.x, table.feature_names if table.x.ndim == 2 else None)
    if trouble:
        raise DataError(f"{data}: {trouble}")
    moves = make_action(action, table.x.shape[-1])
    found = audit(
        load_model(model),
        torch.from_numpy(np.ascontiguousarray(table.x)).float(),
        group=group,
        action=moves,
        output=make_output(output, moves),
        axes=axes,
        worst=worst,
        seed=seed,
    )
    _answer({"model": model, **found.to_json()}, as_json=json, text=str(found))
    failed = fail_above is not None and (found.defect is None or found.defect > fail_above)
    return ABOVE_LIMIT if failed else 0


@app.command
def reproduce(
    name: str | None = None,
    *,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    seeds: int | None = None,
    methods: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    data: Path | None = None,
    epochs: int | None = None,
    time_limit: str | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    device: str = "auto",
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("runs/reproduce"),
    results: Path | None = None,
    json: Json = False,
) -> int:
    """Run one of the paper's experiments, all methods side by side, with the paper's numbers.

    Finished runs are kept and not repeated: the same command continues where it was stopped. Of
    what is trained one seed at a time (molecules, images) that is in the middle of an epoch;
    elsewhere the method at hand begins again.

    Parameters
    ----------
    name
        The experiment.
    list_
        Show the experiments and their methods.
    seeds
        Number of seeds, from 0 on; 3 unless given, 1 for molecules.
    methods
        Only these methods.
    data
        A file to take the data from (two-body, amplitudes, molecules); else they are generated,
        or taken from the usual place.
    epochs
        Length of every training; the paper's unless given.
    time_limit
        Stop training after so long, such as 9m, 1h30m or 90s, with exit code 4; the same command
        continues. Measuring what is trained by then may take a little longer.
    quick
        Little data and few epochs, to see that everything runs; the numbers mean nothing.
    device
        auto, cpu or cuda.
    out
        Folder of the run folders, one for each experiment, method and seed.
    results
        A .json file to collect the results in.
    """
    if list_ or name is None:
        found = {
            key: [m.name for m in experiment.methods] for key, experiment in EXPERIMENTS.items()
        }
        lines = [f"{key}: {EXPERIMENTS[key].title}\n    {', '.join(found[key])}" for key in found]
        _answer(found, as_json=json, text="\n".join(lines))
        return 0
    _refuse_torchrun("reproduce")
    experiment = find_experiment(name)
    chosen = [experiment.method(m) for m in methods] if methods else list(experiment.methods)
    seeds = experiment.n_seeds if seeds is None else seeds
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one is needed")
    if epochs is not None:
        if epochs < 1:
            raise ValueError(f"--epochs {epochs}: at least one is needed")
        experiment = replace(experiment, epochs=epochs, quick_epochs=epochs, epochs_of={})
    deadline = None if time_limit is None else time.monotonic() + _seconds(time_limit)
    settings = Settings(
        seeds=range(seeds), source=data, quick=quick, device=device, deadline=deadline
    )
    folder = out / (f"{name}-quick" if quick else name)
    task = experiment.task(data, quick)
    # Before hours of training, not after them.
    for place in (folder, *([] if results is None else [results.parent])):
        _make_folder(place)
    found = []
    try:
        for number, method in enumerate(chosen):
            if number and settings.seconds_left == 0:
                raise TimeIsUp
            found += run_method(experiment, method, task, folder, settings, _complain)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; what is finished is kept in {folder}, and the same command continues"
        ) from None
    except TimeIsUp:
        _complain(f"stopped after {time_limit}; the state is in {folder}, the same command goes on")
        return STOPPED
    if results is not None:
        write_results(experiment, folder, results)
    _answer(
        {"experiment": name, "folder": str(folder), "results": found},
        as_json=json,
        text="\n".join([experiment.title, *summary(experiment, found), f"runs: {folder}"]),
    )
    return 0


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
    _refuse_torchrun("sweep")
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
        shared.work(lambda trial, folder: _run_trial(plan, trial, folder), wait=wait, say=_complain)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; the same command continues, what is done is kept in {shared.path}"
        ) from None
    return _conclude_sweep(shared, as_json=json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process unless given.
    """
    try:
        with joined():
            code = app(
                sys.argv[1:] if arguments is None else list(arguments),
                exit_on_error=False,
                result_action="return_value",
            )
    except CycloptsError:
        # cyclopts has printed its message.
        code = BAD_INPUT
    except (DataError, RunError, TrainingDiverged, ImportError, ValueError, OSError) as error:
        # An ImportError says which extra is missing.
        _complain(str(error))
        code = BAD_INPUT
    except (MemoryError, torch.OutOfMemoryError) as error:
        _complain(_no_memory(error))
        code = BAD_INPUT
    except RuntimeError as error:
        # How torch says it of the memory of a CPU.
        if "can't allocate memory" in str(error):
            _complain(_no_memory(error))
        elif is_lost_connection(error):
            _complain("another process of this run has ended; its message says why")
        else:
            raise
        code = BAD_INPUT
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted")
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _no_memory(error: Exception) -> str:
    return f"not enough memory: {in_short(error)}. Try fewer --views, or a smaller data set"


# -- how a run goes --------------------------------------------------------------------------------


def _start(folder: RunFolder, request: dict[str, Any], *, as_json: bool, strict: bool) -> int:
    if request["command"] == "discover":
        # Read before anything is written, so that bad data leaves no folder behind.
        _prepare(folder, request)
    with folder.alone():
        # Asked again, now that no other process can come between.
        RunFolder.ensure_new(folder.path)
        try:
            write_json(folder.path / "command.json", request)
            return _run(folder, request, resume=False, as_json=as_json, strict=strict)
        except BaseException:
            folder.clear()
            raise


def _request_of(folder: RunFolder) -> dict[str, Any]:
    """What the command line was asked when it started the run."""
    path = folder.path / "command.json"
    if not path.exists():
        raise RunError(
            f"{folder.path} was not started from the command line; resume it from Python with "
            f"fit(X, y, resume=True)"
        )
    request = read_json(path)
    kinds = {"demo": _DemoRequest, "discover": _DiscoverRequest}
    command = request.get("command") if isinstance(request, dict) else None
    if not isinstance(command, str) or command not in kinds:
        raise RunError(f"{path} is damaged: it does not say what was asked")
    found = fields_of(kinds[command], request, path)
    unknown = set(found.get("parameters", {})) - set(get_type_hints(_Parameters))
    if unknown:
        raise RunError(f"{path} is damaged: {in_short(sorted(unknown)[0])} is no setting")
    return found


class _DemoRequest(TypedDict, total=False):
    """What ``command.json`` holds of a demo."""

    task: str
    seed: Required[int]
    epochs: Required[int]


class _Parameters(TypedDict):
    """Of an estimator, those that can be asked for."""

    action: Action
    output: Literal["invariant", "same"]
    n_generators: int | Literal["auto"]
    blocks: list[int] | None
    epochs: int | None
    batch_size: int
    n_views: int
    range: float | None
    n_seeds: int
    random_state: int
    device: str


class _DiscoverRequest(TypedDict, total=False):
    """What ``command.json`` holds of a discovery."""

    data: Required[str]
    target: Required[str]
    task: Required[Literal["auto", "regression", "classification"]]
    parameters: Required[_Parameters]
    size: int | None
    stream: bool | None


# An estimator, the inputs and targets to fit it on (a stream has both), and what to make of it.
Prepared = tuple[Any, np.ndarray | FileStream, np.ndarray | None, Callable[[Any], Findings]]


def _run(
    folder: RunFolder, request: dict[str, Any], *, resume: bool, as_json: bool, strict: bool
) -> int:
    estimator, x, y, finish = _prepare(folder, request)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: _remark(f"note: {message}")
        try:
            estimator.fit(x, y, resume=resume, findings=finish)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted; continue with: lieaugmenter resume {folder.path}"
            ) from None
    # The first process has written what all of them read here.
    wait_for_all()
    return _conclude(Findings.load(folder), folder, as_json=as_json, strict=strict)


def _prepare(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    """The estimator, its data, and what to make of it once fitted."""
    if request["command"] == "demo":
        return _prepare_demo(folder, request)
    path, target, size = Path(request["data"]), request["target"], request.get("size")
    stream = _stream_of(path, target, request.get("stream"), size)
    if stream is not None:
        task = request["task"] if request["task"] != "auto" else _task_of_stream(stream)
        return _prepare_discovery(folder, request, stream, None, task, stream.feature_names)
    table = read_data(path, target, size=size)
    errors = [
        note.text
        for note in examine(table.x, table.y, table.feature_names)
        if note.level == "error"
    ]
    if errors:
        raise DataError(f"{request['data']}: {errors[0]}")
    if (
        table.x.ndim == 4
        and table.x.dtype == np.uint8
        and request["parameters"]["action"] != "image"
    ):
        raise DataError(f"{request['data']}: holds images; say so with --action image")
    names = table.feature_names if table.x.ndim < 4 else None
    task = _task_of(table.y, request["task"])
    return _prepare_discovery(folder, request, table.x, table.y, task, names)


def _prepare_demo(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    if request.get("task") == "digits":
        return _prepare_digits(folder, request)
    task = two_body(seed=request["seed"])
    # The paper's setting, with the range warm-up and a falling learning rate on.
    estimator = lieaugmenter.SymmetryRegressor(
        "mlp",
        action="vector",
        output="same",
        blocks=[2, 2, 2, 2],
        hidden=(128, 128, 128),
        objective=PAPER_TWO_BODY,
        n_views=10,
        range=2.0,
        scale=False,
        epochs=request["epochs"],
        batch_size=64,
        validation=0.05,
        random_state=request["seed"],
        run_directory=folder.path,
        feature_names=list(FEATURES),
        verbose=1,
    )

    def finish(fitted: Any) -> Findings:
        return _orbit_findings(fitted, task, request)

    return estimator, task.x_train.numpy(), task.y_train.numpy(), finish


def _orbit_findings(fitted: Any, task: TwoBody, request: dict[str, Any]) -> Findings:
    x, y = task.x_test.numpy(), task.y_test.numpy()

    def error(views: int) -> float:
        return float(np.square(fitted.predict(x, views=views) - y).mean())

    averaged, direct = error(fitted.n_views), error(0)
    return _demo_findings(
        fitted,
        task.generator,
        title="Two-body orbits",
        symmetry="The rotation that turns both bodies' positions and momenta together",
        test=f"On orbits that start in the other half of the plane the predictor's mean squared "
        f"error is {averaged:.2g}.",
        numbers={
            "test MSE, averaged over the symmetry": averaged,
            "test MSE, direct": direct,
        },
        command=f"lieaugmenter demo --seed {request['seed']} --epochs {request['epochs']}",
    )


def _prepare_digits(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    # The estimator holds out a part of its own.
    task = digits(1_400, 1, seed=request["seed"])
    estimator = lieaugmenter.SymmetryClassifier(
        _narrow_cnn,
        action="image",
        objective=_DIGITS,
        n_views=10,
        range=3.0,
        lr=2e-3,
        epochs=request["epochs"],
        validation=0.1,
        random_state=request["seed"],
        run_directory=folder.path,
        verbose=1,
    )

    def finish(fitted: Any) -> Findings:
        return _digit_findings(fitted, task, request)

    return estimator, task.x_train.numpy(), task.y_train.numpy(), finish


def _narrow_cnn(in_shape: tuple[int, int, int], out_shape: tuple[int]) -> CNN:
    """Narrow enough for a demo: on 8 × 8 pixels a wider one only takes longer."""
    return CNN(in_shape, out_shape[0], width=16)


def _digit_findings(fitted: Any, task: Task, request: dict[str, Any]) -> Findings:
    assert task.generator is not None
    x, y = task.x_test.numpy(), task.y_test.numpy()

    def accuracy(views: int) -> float:
        return float((fitted.predict(x, views=views) == y).mean())

    averaged, direct = accuracy(fitted.n_views), accuracy(0)
    return _demo_findings(
        fitted,
        task.generator,
        title="Rotated digits",
        symmetry="The rotation of the image plane",
        test=f"Of the images kept for testing, {100 * averaged:.1f} % are recognised.",
        numbers={
            "test accuracy, averaged over the symmetry": averaged,
            "test accuracy, direct": direct,
        },
        command=f"lieaugmenter demo digits --seed {request['seed']} --epochs {request['epochs']}",
    )


def _demo_findings(
    fitted: Any,
    truth: Tensor,
    *,
    title: str,
    symmetry: str,
    test: str,
    numbers: dict[str, float],
    command: str,
) -> Findings:
    """What a demo found, beside the symmetry that is known to be there."""
    learned = torch.from_numpy(fitted.generators_)
    cosine = float(absolute_cosine(learned, truth).max())
    found = fitted.findings()
    recovered = "was found" if cosine > _RECOVERED else "was not found"
    sentence = (
        f"{symmetry} {recovered}: the learned generator has cosine {cosine:.6f} with it. {test} "
    )
    return fitted.findings(
        title=title,
        sentence=sentence + found.sentence,
        truth=truth,
        numbers={
            "cosine to the true generator": cosine,
            "Frobenius projection on it": float(frobenius_projection(learned, truth).max()),
            **numbers,
            **found.numbers,
        },
        command=command,
    )


def _prepare_discovery(
    folder: RunFolder,
    request: dict[str, Any],
    x: np.ndarray | FileStream,
    y: np.ndarray | None,
    task: str,
    names: list[str] | None,
) -> Prepared:
    kinds = {
        "regression": lieaugmenter.SymmetryRegressor,
        "classification": lieaugmenter.SymmetryClassifier,
    }
    estimator = kinds[task](
        run_directory=folder.path, feature_names=names, verbose=1, **request["parameters"]
    )

    def finish(fitted: Any) -> Findings:
        options = {key: v for key, v in request["parameters"].items() if v is not None}
        command = ["lieaugmenter", "discover", request["data"], "--target", request["target"]]
        command += ["--task", request["task"]]
        if request.get("size") is not None:
            command += ["--size", str(request["size"])]
        if request.get("stream") is not None:
            command += ["--stream" if request["stream"] else "--no-stream"]
        for name, value in options.items():
            words = [str(word) for word in (value if isinstance(value, list) else [value])]
            command += [_OPTION_NAMES.get(name, f"--{name}"), *words]
        return fitted.findings(title=Path(request["data"]).name, command=shlex.join(command))

    return estimator, x, y, finish


# Options of `discover` that the estimators call something else.
_OPTION_NAMES = {
    "batch_size": "--batch-size",
    "n_generators": "--generators",
    "n_views": "--views",
    "n_seeds": "--seeds",
    "random_state": "--seed",
}


def _conclude(findings: Findings, folder: RunFolder, *, as_json: bool, strict: bool) -> int:
    page = folder.path / "report.html"
    if process_number() == 0 and not page.exists():
        write_report(findings, page)
    result = {
        "run": str(folder.path),
        "report": str(page),
        "sentence": findings.sentence,
        "verdict": findings.verdict.to_json(),
        "numbers": findings.numbers,
        "generators": findings.generators.tolist(),
    }
    rows = [f"  {name}: {_shown(value)}" for name, value in findings.numbers.items()]
    matrices = _matrices(findings)
    text = "\n".join([findings.sentence, "", *rows, *matrices, "", f"report: {page}"])
    _answer(result, as_json=as_json, text=text)
    return INCONCLUSIVE if strict and findings.verdict.outcome == "inconclusive" else 0


# -- many runs -------------------------------------------------------------------------------------


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
        if _stream_of(data, target, settings.get("stream"), size) is None:
            read_data(data, target, size=size)


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
    _answer({"folder": str(sweep.path), "settings": content}, as_json=as_json, text=text)
    return 0


# -- small things ----------------------------------------------------------------------------------


def _finished(run: Path) -> RunFolder:
    folder = RunFolder.open(run)
    if not folder.finished:
        raise RunError(f"{run} is not finished; first: lieaugmenter resume {run}")
    return folder


def _refuse_torchrun(command: str) -> None:
    if process_count() > 1:
        raise ValueError(f"{command} trains each of its runs in one process: leave out torchrun")


def _seconds(text: str) -> float:
    """A duration in seconds.

    >>> _seconds("9m"), _seconds("1h30m"), _seconds("90")
    (540.0, 5400.0, 90.0)
    """
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s?)?", text.strip())
    if not text.strip() or found is None:
        raise ValueError(f"--time-limit {text!r}: give a duration such as 9m, 1h30m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError.of(path, error) from None


def _new_folder(asked: Path | None, name: str) -> RunFolder:
    """The folder asked for if it is free; else the first free one of that name in runs/."""
    if asked is not None:
        RunFolder.ensure_new(asked)
        return RunFolder(asked)

    def path(number: int) -> Path:
        return Path("runs") / (name if number == 1 else f"{name}-{number}")

    free = next(number for number in count(1) if not path(number).exists())
    return RunFolder(path(number_from_first(free)))


def _task_of(y: np.ndarray, asked: str) -> str:
    if asked != "auto":
        return asked
    if y.ndim != 1 or y.dtype.kind not in "biuUS":
        return "regression"
    distinct = len(np.unique(y))
    if y.dtype.kind in "iu" and distinct > _MOST_CLASSES:
        raise DataError(
            f"the target holds {distinct} different whole numbers: labels or quantities? Say "
            f"--task classification or --task regression"
        )
    return "classification"


def _stream_of(path: Path, target: str, asked: bool | None, size: int | None) -> FileStream | None:
    """The file as a stream, if it is to be read piece by piece."""
    if asked is None:
        asked = path.is_file() and path.suffix.lower() in STREAMED and is_large(path)
    if not asked:
        return None
    if size is not None:
        raise DataError(f"{path}: a size is for folders and archives of images, not for arrays")
    return stream_data(path, target)


def _task_of_stream(stream: FileStream) -> str:
    if stream.labels is not None:
        return "classification"
    if stream.targets_of(0).dtype.kind not in "biu":
        return "regression"
    labels = stream.distinct(_MOST_CLASSES)
    if labels is None and stream.targets_of(0).ndim == 1:
        raise DataError(
            f"the target holds more than {_MOST_CLASSES} different whole numbers: labels or "
            f"quantities? Say --task classification or --task regression"
        )
    return "regression" if labels is None else "classification"


def _look_through(
    stream: FileStream,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, str], str, list[Note]]:
    """Shapes, types, the task and the remarks of a stream, from one reading of it."""
    survey = Survey()
    types = ("", "")
    for x, y in stream.pieces():
        survey.add(x.numpy(), y.numpy())
        types = (str(x.numpy().dtype), str(y.numpy().dtype))
    try:
        task = _task_of_stream(stream)
    except DataError as question:
        task = str(question)
    shapes = ((survey.count, *survey.sample_shape), (survey.count, *survey.y_shape))
    names = stream.feature_names if len(survey.sample_shape) == 1 else None
    return *shapes, types, task, survey.notes(names)


def _task_or_question(y: np.ndarray) -> str:
    try:
        return _task_of(y, "auto")
    except DataError as question:
        return str(question)


def _fitting_actions(shape: tuple[int, ...]) -> list[str]:
    if len(shape) == 4:
        first = "image, once X.transpose(0, 3, 1, 2) has put channels first"
        return [first if shape[3] <= 4 < shape[1] else "image"]
    fitting = ["vector"] if len(shape) == 2 else ["points"]
    fitting.append("affine")
    return [*fitting, "fourvector"] if shape[-1] == 4 else fitting


def _matrices(findings: Findings) -> list[str]:
    """The generators as text, while a terminal can hold them."""
    if findings.generators.shape[-1] > 8:
        return []
    lines = []
    for number, generator in enumerate(findings.generators.tolist(), start=1):
        lines += ["", f"  L{number} on {', '.join(findings.feature_names)}:"]
        lines += ["    " + " ".join(f"{value:+7.3f}" for value in row) for row in generator]
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value)


def _answer(result: dict[str, Any], *, as_json: bool, text: str) -> None:
    if process_number() > 0:
        return
    if as_json:
        print(jsonlib.dumps(result, indent=2, ensure_ascii=False))
    else:
        _console().print(text, markup=False, highlight=True, soft_wrap=True)


def _complain(message: str) -> None:
    who = "" if process_count() == 1 else f" (process {process_number() + 1})"
    Console(stderr=True).print(f"lieaugmenter{who}: {message}", markup=False, soft_wrap=True)


def _remark(message: str) -> None:
    """Something to know that is no error: once, however many processes find it."""
    if process_number() == 0:
        _complain(message)


def _console() -> Console:
    return Console()


if __name__ == "__main__":
    main()
