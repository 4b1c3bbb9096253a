"""Tensors that are always the same, made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import ParamSpec

import torch
from torch import Tensor

_Arguments = ParamSpec("_Arguments")


def constant(make: Callable[_Arguments, Tensor]) -> Callable[_Arguments, Tensor]:
    """A function that makes each of its tensors once and keeps it.

    Making one in every step would take time, and interrupt the capture of a CUDA graph. Not kept is
    what is made while ``torch.compile`` or ``torch.export`` look at the code: that stands for a
    tensor, and holds no numbers.

    >>> @constant
    ... def ones(n: int) -> Tensor:
    ...     return torch.ones(n)
    >>> ones(3) is ones(3)
    True
    """

    @lru_cache(maxsize=64)
    def kept(*arguments: Hashable, **named: Hashable) -> Tensor:
        # Outside inference mode, whose tensors could not be used in training later.
        with torch.inference_mode(False):
            return make(*arguments, **named)  # pyright: ignore[reportCallIssue]  # lru_cache forgets the types

    @wraps(make)
    def found(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Tensor:
        if torch.compiler.is_compiling():
            return make(*arguments, **named)
        return kept(*arguments, **named)

    return found
