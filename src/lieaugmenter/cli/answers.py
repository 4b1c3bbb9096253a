"""What the commands say: results on standard output, all else on standard error."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from lieaugmenter.processes import process_count, process_number
from lieaugmenter.runs import finite


def answer(result: dict[str, Any], *, as_json: bool, text: str) -> None:
    """Print a result: once, however many processes have it.

    Parameters
    ----------
    result
        What there is to say, for a program.
    as_json
        Whether a program asked.
    text
        The same for a reader.
    """
    if process_number() > 0:
        return
    if as_json:
        print(as_text(result))
    else:
        Console().print(text, markup=False, highlight=True, soft_wrap=True)


def as_text(content: Any) -> str:
    """JSON that every parser reads: numbers that it cannot hold (nan, inf) become null."""
    return json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False)


def complain(message: str) -> None:
    """Say something beside the result; of several processes, which one says it."""
    who = "" if process_count() == 1 else f" (process {process_number() + 1})"
    Console(stderr=True).print(f"lieaugmenter{who}: {message}", markup=False, soft_wrap=True)


def remark(message: str) -> None:
    """Something to know that is no error: once, however many processes find it."""
    if process_number() == 0:
        complain(message)
