"""The run folder of a fit: opened or resumed, and what goes into it."""

from __future__ import annotations

from typing import Any

from sklearn.utils import check_random_state

from lieaugmenter.estimators.settings import Settings, recorded
from lieaugmenter.processes import number_from_first
from lieaugmenter.runs import RunError, RunFolder, check_same, versions


def first_seed(settings: Settings, resume: bool) -> int:
    """The seed of the first training run; that of the run being resumed, however it came."""
    if resume and settings.run_directory is not None:
        return int(RunFolder.open(settings.run_directory).config()["seed"])
    return number_from_first(int(check_random_state(settings.random_state).randint(2**31 - 1)))


def open_run(
    settings: Settings, data: dict[str, Any], *, seed: int, resume: bool
) -> RunFolder | None:
    """The folder that was asked for; one that is resumed must be of the same fit."""
    if settings.run_directory is None:
        if resume:
            raise ValueError("resume=True needs run_directory=, the run to continue")
        return None
    config = {
        "estimator": type(settings).__name__,
        "parameters": recorded(settings),
        "data": data,
        "seed": seed,
        "versions": versions(),
    }
    if not resume:
        return RunFolder.create(settings.run_directory, config)
    run = RunFolder.open(settings.run_directory)
    found = run.config()
    if found.get("data") != config["data"]:
        then, now = found.get("data", {}), config["data"]
        raise RunError(
            f"{run.path} was fitted on data {str(then.get('sha256'))[:8]}… of shape "
            f"{then.get('x_shape')}, this is {now['sha256'][:8]}… of shape {now['x_shape']}. "
            f"Use a new run directory"
        )
    for kind in ("versions", "parameters"):
        check_same(run.path, found.get(kind, {}), config[kind])
    return run
