"""A run is a folder: what it holds, and how files are written so that none is ever half there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from io import BufferedRandom
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

from lieaugmenter.processes import done_by_first, process_number

try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None

SCHEMA = 1
# What a folder may hold before a run has begun there: traces of one that was stopped at once.
_BEFORE_A_RUN = ("command.json", "environment.json", ".lock")
_UNFINISHED = ".tmp"
_REMEDIES = {
    errno.ENOSPC: "Make room on that disk",
    errno.EDQUOT: "Make room within your quota",
    errno.EFBIG: "Allow larger files",
    errno.EROFS: "Choose a folder that can be written to",
    errno.EACCES: "Choose a folder that you may write to",
    errno.EPERM: "Choose a folder that you may write to",
}
# Of a text that is read whole; those that are written have some MiB at most.
LARGEST_JSON = 2**28


class RunError(ValueError):
    """A run folder that cannot be used, with a message that says why and what to do."""


class WriteError(RunError, OSError):
    """A file that could not be written; what was there before is untouched."""

    @classmethod
    def of(cls, path: Path, error: OSError) -> WriteError:
        """The reason for `path`, and what to do about it."""
        remedy = _REMEDIES.get(error.errno or 0, "Choose another place")
        return cls(
            f"cannot write to {path}: {error.strerror or error}. {remedy}; what was there before "
            f"is untouched"
        )


def write_atomically(path: Path, content: bytes | str, *, previous: Path | None = None) -> None:
    """Write to a temporary name in the same folder, then rename: readers see all or nothing.

    Of several processes that train together only the first writes.

    Parameters
    ----------
    path
        The file.
    content
        All of it.
    previous
        A name in the same folder for what `path` was before.

    Raises
    ------
    WriteError
        The disk is full, the folder read-only, …; nothing has changed.
    """
    if process_number() > 0:
        return
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            # A rename would put a file in the place of a device, which root is allowed to.
            raise FileExistsError(errno.EEXIST, "no plain file, and never replaced", str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED
        )
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.chmod(0o644)
            put_in_place(temporary, path, previous=previous)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError.of(path, error) from None


def put_in_place(written: Path, path: Path, *, previous: Path | None = None) -> None:
    """Give a file that is written its final name, once all of it is on the disk."""
    with written.open("rb") as file:
        os.fsync(file.fileno())
    if previous is not None and path.exists():
        path.replace(previous)
    written.replace(path)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, content: Any) -> None:
    """JSON, atomically; numbers that JSON cannot hold (nan, inf) become null."""
    write_atomically(path, json.dumps(finite(content), indent=2, ensure_ascii=False) + "\n")


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
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, Any] | None = None,
    *,
    previous: Path | None = None,
) -> None:
    """A safetensors file, atomically, with JSON metadata and a checksum in its header."""
    words = json.dumps(dict(metadata or {}))
    # Cloned, because tensors that share their storage (tied weights) cannot be written.
    own = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    header = {"json": words, "sha256": digest_of(own, words)}
    write_atomically(path, to_safetensors(own, header), previous=previous)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a safetensors file, or a `RunError`; nothing is unpickled.

    The checksum is compared where there is one: files of other programs have none.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
        words = header.get("json", "{}")
        whole = header.get("sha256", "") in ("", digest_of(tensors, words))
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {in_short(error)}") from None
    if not whole:
        raise RunError(f"{path} is damaged: its content does not have the checksum in its header")
    metadata = _parse(words, path)
    if not isinstance(metadata, dict):
        raise RunError(f"{path} is damaged: its header says {in_short(metadata)}")
    return tensors, metadata


def digest_of(tensors: Mapping[str, Tensor], words: str = "") -> str:
    """SHA-256 of named tensors (types, shapes and all values) and a text that goes with them."""
    digest = hashlib.sha256(words.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(str((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_same(where: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise a `RunError` that lists what `where` was started with and what is asked now.

    Only what both tell is compared: older versions wrote down less.
    """
    different = [
        f"{name}: {in_short(then[name])} then, {in_short(value)} now"
        for name, value in now.items()
        if name in then and then[name] != value
    ]
    if different:
        raise RunError(
            f"{where} was started with other settings ({'; '.join(different)}). Use a new run "
            f"directory, or what it was started with"
        )


def versions() -> dict[str, str]:
    """Of the code that a run depends on to the bit."""
    # Taken from the loaded package: importing it here would reach up to every other room.
    return {"lieaugmenter": sys.modules["lieaugmenter"].__version__, "torch": torch.__version__}


def environment() -> dict[str, Any]:
    """What a number depends on besides the code: versions, machine, time."""
    return {
        **versions(),
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

    ``config.json`` (what was asked), ``metrics.jsonl`` (a line an epoch), ``checkpoint/`` (the last
    two, to continue from), ``seeds/``, ``teams/`` and ``plain/`` (trainings that are part of the
    run), ``basis.safetensors``, ``network.safetensors``, ``elements.safetensors`` (what predictions
    are averaged over), ``samples.safetensors`` (a few inputs for the pictures),
    ``sweep.safetensors`` (some of them carried along the generators, with what is predicted there),
    ``verdict.json``, ``environment.json``, ``report.html``; ``non-finite/`` (batches to inspect)
    where something went wrong.

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
        write_json(run.path / "environment.json", environment())
        # Last, because it is what makes the folder a run.
        write_json(run.config_path, {"schema": SCHEMA, **config})
        return run

    @classmethod
    def ensure_new(cls, path: str | Path) -> None:
        """Raise a `RunError` if there is a run, or a file, at that path."""
        # By the first process alone: it may begin to write while another has yet to look.
        done_by_first(cls(path)._check_new, RunError)

    def _check_new(self) -> None:
        self._check_no_file()
        if self.config_path.exists():
            state = "a finished run" if self.finished else "an unfinished run"
            advice = "choose another folder"
            if not self.finished:
                advice += ", or resume it"
            raise RunError(f"{self.path} holds {state}, which is never overwritten; {advice}")
        names = [path.name for path in self.path.glob("*")]
        others = [n for n in names if n not in _BEFORE_A_RUN and not n.endswith(_UNFINISHED)]
        if others:
            raise RunError(
                f"{self.path} is not empty (it holds {sorted(others)[0]}); choose another folder, "
                f"so that nothing of yours is overwritten"
            )

    def _check_no_file(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file; a run needs a folder of its own")

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
    def previous_checkpoint_path(self) -> Path:
        return self.checkpoint_path.with_name("previous.safetensors")

    def part(self, *names: str) -> RunFolder:
        """A training that is part of this run, with a folder of its own inside it."""
        return RunFolder(self.path.joinpath(*names))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the folder, which is made if it is not there.

        The thread that has it may ask again. The lock goes with the process: one that was killed
        leaves nothing to clear away. Processes that train together have it together: the first
        takes it, and if that is refused, all are.

        Raises
        ------
        RunError
            Another process, or another thread, works there.
        """
        held: list[_Lock] = []
        done_by_first(lambda: held.append(self._lock()), RunError)
        try:
            if held:
                self._remove_unfinished()
            yield
        finally:
            for lock in held:
                lock.give_back()

    def _lock(self) -> _Lock:
        self._check_no_file()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return _Lock.take(self.path.resolve())
        except OSError as error:
            raise WriteError.of(self.path, error) from None

    def _remove_unfinished(self) -> None:
        """What a process that was killed while it wrote has left."""
        for unfinished in self.path.rglob(f".*{_UNFINISHED}"):
            unfinished.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the folder if no run has begun there, so that its name can be used again."""
        if process_number() == 0 and not self.config_path.exists() and self.path.is_dir():
            for name in _BEFORE_A_RUN:
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    @property
    def weights_path(self) -> Path:
        """The weights alone, half the size of the network, where they are kept."""
        return self.path / "checkpoint" / "weights.safetensors"

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end: the verdict is the last thing written."""
        return (self.path / "verdict.json").is_file()

    def check_finished(self) -> None:
        """Raise a `RunError` that says how to finish a run that has not come to its end."""
        if self.finished:
            return
        first = "fit(X, y, resume=True) in Python, with the same settings"
        if (self.path / "command.json").exists():
            first = f"lieaugmenter resume {self.path}"
        raise RunError(f"{self.path} is not finished; first: {first}")

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
        lines = [json.dumps(finite(record)) for record in records]
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


@dataclass
class _Lock:
    """A folder that this process has to itself, and how often its thread has asked for it."""

    folder: Path
    file: BufferedRandom
    thread: int
    times: int = 1

    @classmethod
    def take(cls, folder: Path) -> _Lock:
        held = _HELD.get(folder)
        if held is not None:
            if held.thread != threading.get_ident():
                raise RunError(f"{folder} is in use by another thread; choose another folder")
            held.times += 1
            return held
        held = _HELD[folder] = cls(folder, _locked(folder / ".lock"), threading.get_ident())
        return held

    def give_back(self) -> None:
        self.times -= 1
        if not self.times:
            del _HELD[self.folder]
            # Removed while it is still held; a disk that refuses keeps a file that locks nothing.
            with suppress(OSError):
                (self.folder / ".lock").unlink(missing_ok=True)
            self.file.close()


_HELD: dict[Path, _Lock] = {}


def _locked(path: Path) -> BufferedRandom:
    """The open lock file: the kernel lets go of it when the process ends, however it ends."""
    while True:
        file = path.open("a+b")
        try:
            if fcntl is not None:
                _lock_or_refuse(file, path)
            if _is_still_there(path, file):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _is_still_there(path: Path, file: BufferedRandom) -> bool:
    """False if whoever had the lock before removed the file after this process had opened it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _lock_or_refuse(file: BufferedRandom, path: Path) -> None:
    assert fcntl is not None  # the caller has looked
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read(200).decode(errors="replace") or "another process"
        raise RunError(
            f"{path.parent} is in use by {owner}; wait for it to end, or choose another folder"
        ) from None
    except OSError as error:
        warnings.warn(
            f"{path.parent} is on a disk without locks ({error.strerror}): see to it that no other "
            f"process uses the folder",
            stacklevel=2,
        )


def finite(content: Any) -> Any:
    """Plain values, in which numbers that JSON cannot hold (nan, inf) are None."""
    if isinstance(content, float):
        return content if content - content == 0 else None
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
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
