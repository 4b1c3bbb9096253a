"""A run is a folder: what it holds, and how files are written so that none is ever half there."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

SCHEMA = 1


class RunError(ValueError):
    """A run folder that cannot be used, with a message that says why and what to do."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name in the same folder, then rename: readers see all or nothing."""
    data = content.encode() if isinstance(content, str) else content
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
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} is missing; is {path.parent} a run folder?") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


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
            return tensors, json.loads((file.metadata() or {}).get("json", "{}"))
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {error}") from None


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
    def weights_path(self) -> Path:
        """The weights alone, half the size of the network, where they are kept."""
        return self.path / "checkpoint" / "weights.safetensors"

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
                f"{self.config_path} has schema {found}; this version reads schema {SCHEMA}"
            )
        return config

    def write_metrics(self, records: list[dict[str, Any]]) -> None:
        """All records so far, one JSON object a line."""
        lines = [json.dumps(_finite(record)) for record in records]
        write_atomically(self.path / "metrics.jsonl", "\n".join(lines) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The records of ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines if line.strip()]
        except FileNotFoundError:
            return []
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{path} is damaged: {error}") from None


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if content - content == 0 else None
    if isinstance(content, Mapping):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
