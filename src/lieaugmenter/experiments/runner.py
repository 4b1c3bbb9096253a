"""Run an experiment: train every method on every seed, measure, and keep each as a run folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from lieaugmenter.data.task import Task
from lieaugmenter.experiments.measuring import measure
from lieaugmenter.experiments.results import read_result, read_settings
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.training import (
    Settings,
    Trained,
    objective_of,
    precision_of,
    train,
    training_folder,
)
from lieaugmenter.runs import (
    RunFolder,
    check_same,
    environment,
    fields_of,
    read_json,
    write_json,
    write_tensors,
)

# Methods that have LieGAN's settings.
_PUBLISHED = ("augerino", "liegan")
# Names the seeds of a method that are being trained.
_BEGUN = "begun.json"


def run_method(
    experiment: Experiment,
    method: Method,
    task: Task,
    out: Path,
    settings: Settings,
    note: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Train and measure one method for all seeds; finished runs are read, not repeated.

    A process that was killed loses at most the epoch under way of a seed that is trained by itself
    (or what the experiment's `save_every` says), and the training under way of seeds that are
    trained as one stack.

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
    folder = RunFolder(out / method.name)
    runs = {seed: folder.part(f"seed-{seed}") for seed in settings.seeds}

    def missing() -> list[int]:
        return [seed for seed in runs if not _is_finished(folder, seed)]

    with folder.alone():
        for seed in runs.keys() - missing():
            configuration = _configuration(experiment, method, seed, settings)
            check_same(runs[seed].path, read_settings(runs[seed].config_path), configuration)
        while seeds := _begun_together(folder) or missing():
            note(f"{experiment.name}: {method.name}, seeds {', '.join(map(str, seeds))}")
            _train_and_keep(experiment, method, task, folder, seeds, settings)
        results = {seed: read_result(run.path / "result.json") for seed, run in runs.items()}
        for seed, result in results.items():
            # What diverged is kept: there is a batch to inspect.
            if "diverged" not in result:
                shutil.rmtree(training_folder(folder, seed).path, ignore_errors=True)
    return list(results.values())


def _begun_together(folder: RunFolder) -> list[int]:
    """Seeds whose training was not finished: a stack repeats to the bit only as a whole."""
    begun = folder.path / _BEGUN
    seeds = fields_of(_Begun, read_json(begun), begun)["seeds"] if begun.exists() else []
    if all(_is_finished(folder, seed) for seed in seeds):
        begun.unlink(missing_ok=True)
        return []
    return seeds


class _Begun(TypedDict):
    """What ``begun.json`` holds."""

    seeds: list[int]


def _is_finished(folder: RunFolder, seed: int) -> bool:
    return (folder.part(f"seed-{seed}").path / "result.json").exists()


def _train_and_keep(
    experiment: Experiment,
    method: Method,
    task: Task,
    folder: RunFolder,
    seeds: Sequence[int],
    settings: Settings,
) -> None:
    """Train seeds together and keep what is not there yet."""
    write_json(folder.path / _BEGUN, {"seeds": list(seeds)})
    for seed, trained in train(experiment, method, task, seeds, settings, folder):
        if _is_finished(folder, seed):
            continue
        result = measure(experiment, method, task, trained, seed, settings)
        configuration = _configuration(experiment, method, seed, settings)
        ran = {
            **environment(),
            "workers": settings.workers,
            "precision": precision_of(experiment, settings),
        }
        _keep(folder.part(f"seed-{seed}").path, configuration, ran, trained, result)
    (folder.path / _BEGUN).unlink()


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
        "least_steps": experiment.least_steps,
        "batch_size": experiment.batch_size,
        "lr": experiment.lr,
        "own_lr": experiment.own_lr,
        "own_schedule": experiment.own_schedule,
        "hidden": list(experiment.hidden),
        "n_views": experiment.n_views,
        "n_generators": experiment.n_generators,
        "range": experiment.range,
        "precision": precision_of(experiment, settings),
        "own_further": experiment.own_further,
        "own_optimizer": experiment.own_optimizer,
        "own_average": experiment.own_average,
        "own_start": experiment.own_start,
        "own_nimble": experiment.own_nimble,
        "warmup": experiment.warmup,
        "warmup_start": experiment.warmup_start,
        "prune": experiment.prune,
        "own_views": experiment.own_views,
        "liegan": asdict(experiment.liegan(method)) if method.kind in _PUBLISHED else None,
        "objective": asdict(objective_of(experiment, method)),
        "source": settings.source.name if settings.source else experiment.data,
    }


def _keep(
    path: Path,
    configuration: dict[str, Any],
    ran: dict[str, Any],
    trained: Trained,
    result: dict[str, Any],
) -> None:
    folder = RunFolder(path)
    write_json(folder.config_path, configuration)
    write_json(path / "environment.json", ran)
    folder.write_metrics(trained.history.records)
    if trained.generators is not None:
        write_tensors(path / "basis.safetensors", {"generators": trained.generators})
    if trained.predictor is not None:
        write_tensors(path / "network.safetensors", trained.predictor.network.state_dict())
    # Last, because it is what marks the run as finished.
    write_json(path / "result.json", result)
