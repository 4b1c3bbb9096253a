"""The one door to Triton, in which kernels for a GPU are written.

Triton comes with torch on Linux with CUDA. Modules with kernels can be imported without it: what
they define is then never called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

try:
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]

    _FOUND = True
except ImportError:
    if TYPE_CHECKING:  # whoever checks the kernels may take Triton as there
        raise
    triton = tl = None
    _FOUND = False


def available() -> bool:
    """Whether Triton can be imported."""
    return _FOUND


def transforming() -> bool:
    """Whether vmap, jvp or the like is at work, whose tensors are not what their address holds."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]


def jit(function: Any) -> Any:
    """A kernel; without Triton only a function that nobody calls."""
    return triton.jit(function) if _FOUND else function
