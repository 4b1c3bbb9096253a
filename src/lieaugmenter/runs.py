"""A run is a folder: what it holds, and how files are written so that none is ever half there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

SCHEMA = 1
# Of a text that is read whole; those that are written have some MiB at most.
LARGEST_JSON = 2**28


class RunError(ValueError):
    """A run folder that cannot be used, with a message that says why and what to do."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name in the same folder, then rename: readers see all or nothing."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        # A rename would put a file in the place of a device, which root is allowed to.
        raise FileExistsError(errno.EEXIST, "no plain file, and never replaced", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """JSON, atomically; numbers that JSON cannot hold (nan, inf) become null."""
    write_atomically(path, json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """JSON of a run folder, or a `RunError` that names the file."""
    return _parse(_read_text(path), path)


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise RunError(f"{path} has more than {LARGEST_JSON // 2**20} MiB: none of ours has")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunError(f"{path} is missing; is {path.parent} a run folder?") from None
    except (UnicodeDecodeError, OSError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None


def _parse(text: str, path: Path) -> Any:
    """The value of a JSON text, or a `RunError`: also where it is nested too deep to be read."""
    try:
        content = json.loads(text)
        if "\\u" in text:
            # Half of a character, which JSON can hold and no file or terminal takes.
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {in_short(error)}") from None
    return content


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> None:
    """A safetensors file, atomically, with JSON metadata in its header."""
    header = {"json": json.dumps(dict(metadata or {}))}
    # Cloned, because tensors that share their storage (tied weights) cannot be written.
    own = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_atomically(path, to_safetensors(own, header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a safetensors file, or a `RunError`; nothing is unpickled."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = (file.metadata() or {}).get("json", "{}")
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {in_short(error)}") from None
    metadata = _parse(header, path)
    if not isinstance(metadata, dict):
        raise RunError(f"{path} is damaged: its header says {in_short(metadata)}")
    return tensors, metadata


def environment() -> dict[str, Any]:
    """What a number depends on besides the code: versions, machine, time."""
    return {
        # Taken from the loaded package: importing it here would reach up to every other room.
        "lieaugmenter": sys.modules["lieaugmenter"].__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def fingerprint(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """What identifies a data set: shapes, types and a hash of all values."""
    digest = hashlib.sha256()
    for array in (x, y):
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return {"sha256": digest.hexdigest(), "x_shape": list(x.shape), "y_shape": list(y.shape)}


class RunFolder:
    """The files of one run.

    ``config.json`` (what was asked), ``metrics.jsonl`` (a line an epoch), ``checkpoint/`` (to
    continue from), ``basis.safetensors``, ``network.safetensors``, ``samples.safetensors`` (a few
    inputs for the pictures), ``sweep.safetensors`` (some of them carried along the generators, with
    what is predicted there), ``verdict.json``, ``environment.json``, ``report.html``.

    Parameters
    ----------
    path
        The folder; made when something is written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any]) -> RunFolder:
        """A new run; a folder that holds a run already is never overwritten."""
        cls.ensure_new(path)
        run = cls(path)
        try:
            write_json(run.config_path, {"schema": SCHEMA, **config})
            write_json(run.path / "environment.json", environment())
        except OSError as error:
            raise RunError(f"cannot write to {run.path}: {error.strerror}") from None
        return run

    @classmethod
    def ensure_new(cls, path: str | Path) -> None:
        """Raise a `RunError` if there is a run, or a file, at that path."""
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise RunError(f"{run.path} is a file; a run needs a folder of its own")
        if run.config_path.exists():
            state = "a finished run" if run.finished else "an unfinished run"
            advice = "choose another folder"
            if not run.finished:
                advice += ", or resume it"
            raise RunError(f"{run.path} holds {state}, which is never overwritten; {advice}")
        others = [path.name for path in run.path.glob("*") if path.name != "command.json"]
        if others:
            raise RunError(
                f"{run.path} is not empty (it holds {sorted(others)[0]}); choose another folder, "
                f"so that nothing of yours is overwritten"
            )

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run."""
        run = cls(path)
        if not run.config_path.is_file():
            raise RunError(f"{run.path} is no run folder: it has no config.json")
        return run

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end: the verdict is the last thing written."""
        return (self.path / "verdict.json").is_file()

    def config(self) -> dict[str, Any]:
        """What was asked of the run."""
        config = read_json(self.config_path)
        if not isinstance(config, dict) or config.get("schema") != SCHEMA:
            found = config.get("schema") if isinstance(config, dict) else None
            raise RunError(
                f"{self.config_path} has schema {in_short(found, 40)}; this version reads schema "
                f"{SCHEMA}"
            )
        return config

    def write_metrics(self, records: list[dict[str, Any]]) -> None:
        """All records so far, one JSON object a line."""
        lines = [json.dumps(_finite(record)) for record in records]
        write_atomically(self.path / "metrics.jsonl", "\n".join(lines) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The records of ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        records = [_parse(line, path) for line in _read_text(path).splitlines() if line.strip()]
        for record in records:
            if not isinstance(record, dict):
                raise RunError(f"{path} is damaged: {in_short(record)} is no record of an epoch")
        return records


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if content - content == 0 else None
    if isinstance(content, Mapping):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


# -- what was read, against the types that it should have ------------------------------------------


def fields_of(kind: type, content: Any, where: object) -> dict[str, Any]:
    """The fields of a dataclass or a TypedDict as a file gave them, each of its declared type.

    Parameters
    ----------
    kind
        The dataclass or TypedDict.
    content
        What the file holds: a dictionary with all fields that have no default. A TypedDict
        leaves open what else there is.
    where
        The file, for the error.

    Raises
    ------
    RunError
        Which names the field, what it holds, and what it should be.

    Examples
    --------
    >>> from typing import TypedDict
    >>> class Point(TypedDict):
    ...     x: float
    >>> fields_of(Point, {"x": 1}, "here")
    {'x': 1.0}
    >>> fields_of(Point, {"x": "one"}, "here")
    Traceback (most recent call last):
        ...
    lieaugmenter.runs.RunError: here is damaged: x is 'one', expected float
    """
    if not isinstance(content, dict):
        raise RunError(f"{where} is damaged: it holds {in_short(content)}")
    types = _hints(kind)
    missing = _required(kind) - set(content)
    if missing:
        raise RunError(f"{where} is incomplete: it has no {', '.join(sorted(missing))}")
    for name, value in content.items():
        if name not in types and is_typeddict(kind):
            continue
        if name not in types:
            raise RunError(f"{where} is damaged: it holds {in_short(name)}, which is not known")
        if not fits(value, types[name]):
            expected = getattr(types[name], "__name__", str(types[name]))
            raise RunError(f"{where} is damaged: {name} is {in_short(value)}, expected {expected}")
    return {
        name: _declared(value, types[name]) if name in types else value
        for name, value in content.items()
    }


def _declared(value: Any, kind: Any) -> Any:
    """A value that fits, with whole numbers as floats where floats are declared: JSON has one."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if isinstance(value, int) and not isinstance(value, bool) and int not in options:
        return float(value) if float in options else value
    for option in options:
        if isinstance(value, list) and get_origin(option) is list and fits(value, option):
            return [_declared(item, get_args(option)[0]) for item in value]
    return value


def fits(value: Any, kind: Any) -> bool:
    """Whether a value that came from JSON, or a tensor, is of a type.

    >>> fits([1, 2.5], list[float]), fits([True], list[float]), fits({"a": None}, dict[str, int])
    (True, False, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if is_typeddict(kind):
        known = _hints(kind)
        return (
            isinstance(value, dict)
            and _required(kind) <= set(value)
            and all(fits(item, known[key]) for key, item in value.items() if key in known)
        )
    if origin is list:
        return isinstance(value, list) and all(fits(item, inner[0]) for item in value)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(fits(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(item, inner[1]) for key, item in value.items()
        )
    if kind in (int, float):
        # True is a number to Python, and whole numbers of JSON know no limit.
        limit = 2**63 if kind is int else sys.float_info.max
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= limit
        return whole or (kind is float and isinstance(value, float))
    return value is None if kind in (None, NoneType) else isinstance(value, kind)


@cache
def _hints(kind: type, include_extras: bool = False) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=include_extras)


@cache
def _required(kind: type) -> set[str]:
    if is_typeddict(kind):
        # Not __required_keys__, which does not see through annotations that are text.
        hints = _hints(kind, include_extras=True)
        total = getattr(kind, "__total__", True)
        return {name for name, hint in hints.items() if total or get_origin(hint) is Required}
    return {
        item.name
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING
    }


def in_short(value: object, longest: int = 200) -> str:
    """What a file holds, or what a library says of it, for a message: it may be of any length.

    >>> in_short("a" * 50, longest=8)
    "'aaaaaaa…"
    """
    text = (str(value) or type(value).__name__) if isinstance(value, Exception) else repr(value)
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"
