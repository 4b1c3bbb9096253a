"""One run, from its folder to its conclusion."""

from __future__ import annotations

import warnings
from itertools import count
from pathlib import Path
from typing import Any

from lieaugmenter.cli.answers import answer, remark
from lieaugmenter.cli.demos import prepare_demo
from lieaugmenter.cli.discoveries import prepare_discovery
from lieaugmenter.cli.program import INCONCLUSIVE
from lieaugmenter.cli.reading import doubt_about_classes
from lieaugmenter.cli.requests import Prepared
from lieaugmenter.processes import number_from_first, process_number, wait_for_all
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import write_report
from lieaugmenter.runs import RunFolder, write_json


def new_folder(asked: Path | None, name: str) -> RunFolder:
    """The folder asked for if it is free; else the first free one of that name in runs/."""
    if asked is not None:
        RunFolder.ensure_new(asked)
        return RunFolder(asked)

    def path(number: int) -> Path:
        return Path("runs") / (name if number == 1 else f"{name}-{number}")

    free = next(number for number in count(1) if not path(number).exists())
    return RunFolder(path(number_from_first(free)))


def start(folder: RunFolder, request: dict[str, Any], *, as_json: bool, strict: bool) -> int:
    """Start a run in a new folder, which is removed if the run does not begin.

    Parameters
    ----------
    folder
        Where it lies.
    request
        What was asked; the folder keeps it.
    as_json, strict
        How to conclude.

    Returns
    -------
    The exit code.
    """
    if request["command"] == "discover":
        # Read before anything is written, so that bad data leaves no folder behind.
        _, x, y, _ = _prepare(folder, request)
        doubt = doubt_about_classes(x if y is None else y) if request["task"] == "auto" else None
        if doubt is not None:
            remark(f"note: {doubt}")
    with folder.alone():
        # Asked again, now that no other process can come between.
        RunFolder.ensure_new(folder.path)
        try:
            write_json(folder.path / "command.json", request)
            return carry_out(folder, request, resume=False, as_json=as_json, strict=strict)
        except BaseException:
            folder.clear()
            raise


def carry_out(
    folder: RunFolder, request: dict[str, Any], *, resume: bool, as_json: bool, strict: bool
) -> int:
    """Train as asked, and conclude.

    Parameters
    ----------
    folder
        Where the run lies.
    request
        What was asked.
    resume
        Whether to continue from the folder's checkpoint.
    as_json, strict
        How to conclude.

    Returns
    -------
    The exit code.
    """
    estimator, x, y, finish = _prepare(folder, request)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: remark(f"note: {message}")
        try:
            estimator.fit(x, y, resume=resume, findings=finish)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted; continue with: lieaugmenter resume {folder.path}"
            ) from None
    # The first process has written what all of them read here.
    wait_for_all()
    return conclude(Findings.load(folder), folder, as_json=as_json, strict=strict)


def _prepare(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    prepare = prepare_demo if request["command"] == "demo" else prepare_discovery
    return prepare(folder, request)


def conclude(findings: Findings, folder: RunFolder, *, as_json: bool, strict: bool) -> int:
    """Write the report unless it is there, and say what was found.

    Parameters
    ----------
    findings, folder
        Of the finished run.
    as_json
        Whether to say it as JSON.
    strict
        Whether an inconclusive verdict has an exit code of its own.

    Returns
    -------
    The exit code.
    """
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
    undecided = findings.verdict.outcome == "inconclusive"
    why = ["", *(f"  - {reason}" for reason in findings.verdict.reasons)] if undecided else []
    text = "\n".join([findings.sentence, *why, "", *rows, *matrices, "", f"report: {page}"])
    answer(result, as_json=as_json, text=text)
    return INCONCLUSIVE if strict and findings.verdict.outcome == "inconclusive" else 0


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
