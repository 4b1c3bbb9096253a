"""The command that repeats the paper's experiments."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from lieaugmenter.cli.answers import answer, complain
from lieaugmenter.cli.options import Json
from lieaugmenter.cli.program import Stopped, app, refuse_torchrun
from lieaugmenter.experiments.catalogue import EXPERIMENTS, find_experiment
from lieaugmenter.experiments.results import check_addable, summary, write_results
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.learning.trainer import TimeIsUp
from lieaugmenter.runs import WriteError

_RUNS = Path("runs/reproduce")
_QUICK = "A quick run, of little data and few epochs: its numbers are not to be compared."


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
    precision: Literal["float32", "bf16"] | None = None,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = _RUNS,
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
        Number of seeds, from 0 on; 3 unless given, 1 for molecules and for quick runs.
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
    precision
        Of the networks, float32 or bf16. Unless given, what the experiment has on a GPU, and
        float32 on a CPU; some CPUs are faster with bf16.
    out
        Folder of the run folders, one for each experiment, method and seed.
    results
        A .json file to collect the results in; those of other methods and seeds in it are kept.
    """
    if list_ or name is None:
        given = {
            repr(name): name,
            "--seeds": seeds is not None,
            "--methods": methods,
            "--data": data,
            "--epochs": epochs is not None,
            "--time-limit": time_limit,
            "--quick": quick,
            "--device": device != "auto",
            "--precision": precision,
            "--out": out != _RUNS,
            "--results": results,
        }
        _refuse_beside_a_list([word for word, value in given.items() if value], listed=list_)
        return _list_experiments(as_json=json)
    refuse_torchrun("reproduce")
    experiment = find_experiment(name)
    chosen = [experiment.method(m) for m in methods] if methods else list(experiment.methods)
    if seeds is None:
        seeds = 1 if quick else experiment.n_seeds
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one is needed")
    if epochs is not None:
        if epochs < 1:
            raise ValueError(f"--epochs {epochs}: at least one is needed")
        experiment = replace(experiment, epochs=epochs, quick_epochs=epochs, epochs_of={})
    deadline = None if time_limit is None else time.monotonic() + _seconds(time_limit)
    settings = Settings(
        seeds=range(seeds), source=data, quick=quick, device=device, deadline=deadline,
        precision=precision,
    )  # fmt: skip
    folder = out / (f"{name}-quick" if quick else name)
    task = experiment.task(data, quick)
    # Before hours of training, not after them.
    for place in (folder, *([] if results is None else [results.parent])):
        _make_folder(place)
    if results is not None:
        source = data.name if data else experiment.data
        check_addable(experiment, results, quick=quick, source=source)
    found = []
    try:
        for number, method in enumerate(chosen):
            if number and settings.seconds_left == 0:
                raise TimeIsUp
            found += run_method(experiment, method, task, folder, settings, complain)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; what is finished is kept in {folder}, and the same command continues"
        ) from None
    except TimeIsUp:
        if results is not None and found:
            write_results(experiment, folder, results)
        spent = f"{_seconds(str(time_limit)):g} s"
        raise Stopped(
            f"stopped after {spent}; the state is in {folder}, the same command goes on"
        ) from None
    if results is not None:
        write_results(experiment, folder, results)
    answer(
        {"experiment": name, "folder": str(folder), "results": found},
        as_json=json,
        text="\n".join(
            [
                experiment.title,
                *summary(experiment, found),
                *([_QUICK] if quick else []),
                f"runs: {folder}",
            ]
        ),
    )
    return 0


def _refuse_beside_a_list(given: list[str], *, listed: bool) -> None:
    """Refuse words that a list of the experiments would leave unheard."""
    if given and listed:
        raise ValueError(f"--list shows all experiments: leave out {', '.join(given)}")
    if given:
        raise ValueError(
            f"{', '.join(given)}: of which experiment? Name one, such as reproduce two-body; "
            f"reproduce --list shows all"
        )


def _list_experiments(*, as_json: bool) -> int:
    found = {key: [m.name for m in experiment.methods] for key, experiment in EXPERIMENTS.items()}
    lines = [f"{key}: {EXPERIMENTS[key].title}\n    {', '.join(found[key])}" for key in found]
    answer(found, as_json=as_json, text="\n".join(lines))
    return 0


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
