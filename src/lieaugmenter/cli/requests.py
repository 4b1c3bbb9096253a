"""What a run is asked to do, as its folder keeps it, and what is prepared for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Required, TypedDict, get_type_hints

import numpy as np

from lieaugmenter.cli.options import Action, Output
from lieaugmenter.data.streaming import FileStream
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import RunError, RunFolder, fields_of, in_short, read_json

# An estimator, the inputs and targets to fit it on (a stream has both), and what to make of it.
Prepared = tuple[Any, np.ndarray | FileStream, np.ndarray | None, Callable[[Any], Findings]]


class _DemoRequest(TypedDict, total=False):
    """What ``command.json`` holds of a demo."""

    task: str
    seed: Required[int]
    epochs: Required[int]


class _Parameters(TypedDict):
    """Of an estimator, those that can be asked for."""

    action: Action
    output: Output
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
    features: str | None
    drop: str | None


def request_of(folder: RunFolder) -> dict[str, Any]:
    """What the command line was asked when it started the run.

    Raises
    ------
    RunError
        If it did not start this one, or what it wrote is damaged.
    """
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
