"""The loops of native.c, compiled on first use where there is a C compiler.

An accelerator that nobody needs: without a compiler or a cache folder to write to, or with
``LIEAUGMENTER_NATIVE=0``, `loops` is None and the torch code runs, which gives the same numbers.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import c_double, c_long, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

_SOURCE = Path(__file__).with_name("native.c")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-ffp-contract=fast")
_COMPILERS = ("cc", "gcc", "clang")
_LONGEST_COMPILATION = 60.0  # seconds
# What native.c has room for.
LARGEST_VECTOR = 16
_LARGEST_MATRIX, _MOST_GENERATORS = 4, 16
# How far the loops may be from torch's exponential on the trial problem, whose numbers are near 1.
_TRIAL_TOLERANCE = 1e-4

_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "series_length": (c_long, [c_double]),
    "squarings": (c_long, [c_double]),
    "vectors_saved": (c_long, [c_long] * 4),
    "vectors_forward": (
        c_long,
        [c_void_p, c_void_p, c_double, c_void_p, c_void_p, *[c_long] * 5, c_double]
        + [c_void_p] * 4,
    ),
    "vectors_backward": (None, [*[c_void_p] * 6, *[c_long] * 6, c_double, c_void_p]),
    "total_forward": (
        None,
        [*[c_void_p] * 3, c_long, c_void_p, c_void_p, *[c_long] * 3, *[c_void_p] * 3],
    ),
    "total_backward": (None, [*[c_void_p] * 3, *[c_long] * 3, *[c_void_p] * 3]),
    "points_forward": (c_long, [*[c_void_p] * 3, *[c_long] * 6, c_void_p]),
    "points_backward": (None, [*[c_void_p] * 4, *[c_long] * 7, *[c_void_p] * 3]),
}


def suits(*tensors: Tensor) -> bool:
    """Whether the loops can read these tensors: float32 numbers in a row, on a CPU."""
    # A compiler that traces through here has tensors without memory.
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:  # not all(…): this runs in every step
        if not (
            type(tensor) in (Tensor, Parameter)
            and tensor.dtype is torch.float32
            and tensor.is_cpu
            and tensor.is_contiguous()
            and tensor.numel()
        ):
            return False
    return True


def acts_by_matrices(basis: Tensor, coefficients: Tensor, x: Tensor) -> bool:
    """Whether `ActByMatrices` is there and takes these tensors."""
    return (
        basis.shape[-1] <= _LARGEST_MATRIX
        and len(basis) <= _MOST_GENERATORS
        and basis.shape[1:] == (x.shape[-1], x.shape[-1])
        and coefficients.shape == (len(x), coefficients.shape[1], len(basis))
        and suits(basis, coefficients, x)
        and loops() is not None
    )


class ActByMatrices(torch.autograd.Function):
    """exp(sum_i w_i L_i) x: `_ManyGenerators` of `exponential` as a single call each way."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, basis: Tensor, coefficients: Tensor, x: Tensor, rows: int
    ) -> Tensor:
        batch, n, d = x.shape
        views, c = coefficients.shape[1:]
        ctx.loops = cast(ctypes.CDLL, loops())
        moved = x.new_empty(batch, views, n, rows)
        sizes = (batch, views, n, c, d, rows)
        doublings = ctx.loops.points_forward(
            basis.data_ptr(), coefficients.data_ptr(), x.data_ptr(), *sizes, moved.data_ptr()
        )
        ctx.save_for_backward(basis, coefficients, x)
        ctx.sizes = (*sizes, doublings)
        return moved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs = ctx.saved_tensors
        gradient = gradient.contiguous()
        wanted = zip(inputs, ctx.needs_input_grad, strict=False)
        results = [torch.empty_like(tensor) if needed else None for tensor, needed in wanted]
        ctx.loops.points_backward(
            gradient.data_ptr(),
            *[tensor.data_ptr() for tensor in inputs],
            *ctx.sizes,
            *[None if result is None else result.data_ptr() for result in results],
        )
        return *results, None


@lru_cache(maxsize=1)
def loops() -> ctypes.CDLL | None:
    """The compiled loops, or None. The first call of a process looks for them, or compiles."""
    if os.environ.get("LIEAUGMENTER_NATIVE") == "0":
        return None
    try:
        loaded = _load(_compiled())
        return loaded if _passes_trial(loaded) else None
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError):
        return None


def _compiled() -> Path:
    """The shared library for this source, compiler and machine; compiled if it is not there."""
    compiler = _compiler()
    key = _digest(_SOURCE.read_bytes(), _version(compiler), *_FLAGS, _machine())
    folder = _cache_folder()
    # The name ends in the digest of the content, so that a damaged file is never loaded.
    for path in folder.glob(f"native-{key}-*.so"):
        if path.stem.endswith(_digest(path.read_bytes())):
            return path
        path.unlink(missing_ok=True)
    return _compile(compiler, folder, key)


def _compile(compiler: Sequence[str], folder: Path, key: str) -> Path:
    handle, name = tempfile.mkstemp(suffix=".tmp", dir=folder)
    os.close(handle)
    temporary = Path(name)
    try:
        command = [*compiler, *_FLAGS, "-o", name, str(_SOURCE), "-lm"]
        _run(command)
        path = folder / f"native-{key}-{_digest(temporary.read_bytes())}.so"
        # Another process may have put the same file there: either is whole.
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _compiler() -> list[str]:
    """``$CC``, or the first compiler on the path."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in [given] if given else [[name] for name in _COMPILERS]:
        if found := shutil.which(command[0]):
            return [found, *command[1:]]
    raise FileNotFoundError("no C compiler")


def _version(compiler: Sequence[str]) -> str:
    return " ".join(compiler) + _run([*compiler, "--version"])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=_LONGEST_COMPILATION,
    )
    return done.stdout


def _machine() -> str:
    """What ``-march=native`` depends on: a home folder may be shared between machines."""
    described = [platform.system(), platform.machine(), platform.processor()]
    processors = Path("/proc/cpuinfo")
    if processors.exists():
        first = processors.read_text().split("\n\n")[0].splitlines()
        described += [line for line in first if line.startswith(("model", "flags", "Features"))]
    return "\n".join(described)


def _cache_folder() -> Path:
    """A folder of ours alone: code is loaded from it."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "lieaugmenter"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _digest(*parts: bytes | str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _passes_trial(loaded: ctypes.CDLL) -> bool:
    """Whether the loops move a vector as torch's exponential does: compilers have errors too."""
    d = 3
    # Whatever the user's default device and precision are.
    kind: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    raw = torch.arange(9, **kind).view(d, d) / 10 - 0.3
    weight, x = torch.tensor([[0.7]], **kind), torch.tensor([[1.0, -0.5, 0.25]], **kind)
    mask, joined = torch.ones(d, d, **kind), torch.empty(2, d, **kind)
    regularisers = torch.empty(2, **kind)
    saved = torch.empty(loaded.vectors_saved(1, 1, 1, d), **kind)
    loaded.vectors_forward(
        raw.data_ptr(), mask.data_ptr(), 1.0, weight.data_ptr(), x.data_ptr(),
        1, 1, 1, 1, d, 6.0,
        joined.data_ptr(), None, regularisers.data_ptr(), saved.data_ptr(),
    )  # fmt: skip
    expected = x @ torch.linalg.matrix_exp(0.7 * raw / raw.norm()).mT
    return bool(((joined[1:] - expected).abs() < _TRIAL_TOLERANCE).all())
