"""Run an experiment: train every method on every seed, measure, and keep each as a run folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lieaugmenter.data.task import Task
from lieaugmenter.experiments.measuring import measure
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.training import (
    Settings,
    Trained,
    objective_of,
    train,
)
from lieaugmenter.runs import RunError, RunFolder, environment, read_json, write_json, write_tensors

# Methods that have LieGAN's settings.
_PUBLISHED = ("augerino", "liegan")
# In a run folder, the checkpoints of what is being trained; a finished run has none.
_UNFINISHED = "unfinished"


def run_method(
    experiment: Experiment,
    method: Method,
    task: Task,
    out: Path,
    settings: Settings,
    note: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Train and measure one method for all seeds; finished runs are read, not repeated.

    A training that was stopped is continued, unless its seeds are trained as a stack.

    Parameters
    ----------
    experiment, method
        What to run.
    task
        The data.
    out
        The folder of the experiment: a run folder for each method and seed goes into it.
    settings
        Seeds, device and the like.
    note
        Called with a line on what is being done.

    Returns
    -------
    list
        A result for each seed, as in its ``result.json``.

    Raises
    ------
    TimeIsUp
        When the settings' deadline has passed; call again to continue.
    """
    folders = {seed: out / method.name / f"seed-{seed}" for seed in settings.seeds}
    missing = [seed for seed, folder in folders.items() if not (folder / "result.json").exists()]
    for seed in folders.keys() - missing:
        _check_same(folders[seed], _configuration(experiment, method, seed, settings))
    if missing:
        note(f"{experiment.name}: {method.name}, seeds {', '.join(map(str, missing))}")
        for seed in missing:
            _begin(folders[seed], _configuration(experiment, method, seed, settings))
        places = {seed: folders[seed] / _UNFINISHED for seed in missing}
        for seed, trained in train(experiment, method, task, missing, settings, places):
            result = measure(experiment, method, task, trained, seed, settings)
            configuration = _configuration(experiment, method, seed, settings)
            _keep(folders[seed], configuration, trained, result)
    return [read_json(folder / "result.json") for folder in folders.values()]


def _configuration(
    experiment: Experiment, method: Method, seed: int, settings: Settings
) -> dict[str, Any]:
    """All that a result depends on besides code and device."""
    experiment = experiment.run_as(method, quick=settings.quick)
    return {
        "experiment": experiment.name,
        "method": method.name,
        "seed": seed,
        "quick": settings.quick,
        "epochs": experiment.epochs,
        "batch_size": experiment.batch_size,
        "lr": experiment.lr,
        "own_lr": experiment.own_lr,
        "hidden": list(experiment.hidden),
        "n_views": experiment.n_views,
        "n_generators": experiment.n_generators,
        "range": experiment.range,
        "precision": experiment.precision,
        "own_schedule": experiment.own_schedule,
        "own_average": experiment.own_average,
        "warmup": experiment.warmup,
        "warmup_start": experiment.warmup_start,
        "prune": experiment.prune,
        "own_views": experiment.own_views,
        "liegan": asdict(experiment.liegan(method)) if method.kind in _PUBLISHED else None,
        "objective": asdict(objective_of(experiment, method)),
        "source": settings.source.name if settings.source else "generated",
    }


def _begin(path: Path, configuration: dict[str, Any]) -> None:
    """What was begun with other settings is not continued; a new run says what it is made with."""
    if (path / _UNFINISHED).exists():
        _check_same(path, configuration)
    else:
        write_json(RunFolder(path).config_path, configuration)


def _check_same(folder: Path, configuration: dict[str, Any]) -> None:
    """A finished run counts only for the settings that it was made with."""
    kept = read_json(folder / "config.json")
    changed = [
        f"{key} {kept[key]!r}, now {value!r}"
        for key, value in configuration.items()
        # What older runs do not tell was not yet to be set.
        if key in kept and kept[key] != value
    ]
    if changed:
        raise RunError(
            f"{folder} was made with other settings ({'; '.join(changed)}); choose another folder"
        )


def _keep(
    path: Path, configuration: dict[str, Any], trained: Trained, result: dict[str, Any]
) -> None:
    folder = RunFolder(path)
    write_json(folder.config_path, configuration)
    write_json(path / "environment.json", environment())
    folder.write_metrics(trained.history.records)
    if trained.generators is not None:
        write_tensors(path / "basis.safetensors", {"generators": trained.generators})
    if trained.predictor is not None:
        write_tensors(path / "network.safetensors", trained.predictor.network.state_dict())
    # Last, because it is what marks the run as finished.
    write_json(path / "result.json", result)
    shutil.rmtree(path / _UNFINISHED, ignore_errors=True)
