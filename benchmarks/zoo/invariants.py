"""What tasks with a continuous symmetry have in common.

Each target is a function in general position of a complete set of invariants, or an equivariant
map with such functions as coefficients; then there is no symmetry beside the one that is meant.
Where a full set of invariants has more symmetry than the group asked for, more points are given.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.zoo.functions import Function, Sampler, generic, square
from benchmarks.zoo.task import ZooTask

ISOTROPIC = "Inputs are isotropic about the origin: their law has the symmetry too."
LOPSIDED = "The law of the inputs is not invariant under it."
MINKOWSKI = (-1.0, 1.0, 1.0, 1.0)


def symmetric(
    name: str,
    family: str,
    action: str,
    dim: int,
    truth: Tensor,
    algebra: str,
    sample: Sampler,
    target: Function,
    note: str,
    *,
    output: str = "invariant",
    classes: int = 0,
) -> ZooTask:
    """A task whose kind is continuous."""
    return ZooTask(
        name=name,
        family=family,
        action=action,
        output=output,
        dim=dim,
        truth=truth.double(),
        algebra=algebra,
        kind="continuous",
        note=note,
        sample=sample,
        target=target,
        classes=classes,
    )


def stacked(*values: Tensor) -> Tensor:
    """Numbers side by side on a last axis."""
    return torch.stack(values, dim=-1)


def padded(basis: Tensor, size: int) -> Tensor:
    """Generators on the first axes of a larger space."""
    more = size - basis.shape[-1]
    return torch.nn.functional.pad(basis, (0, more, 0, more))


def radial(first: int, seed: int, outputs: int = 0, dim: int | None = None) -> Function:
    """A function of the length of the first coordinates and of all others one by one."""
    dim = first if dim is None else dim
    function = generic(1 + dim - first, outputs, seed=seed)

    def target(x: Tensor) -> Tensor:
        length = square(x[..., :first]).add(0.1).sqrt().unsqueeze(-1)
        return function(torch.cat([length, x[..., first:]], dim=-1))

    return target


def turned(target: Function, frame: Tensor) -> Function:
    """The same target in coordinates x = frame z."""
    return lambda x: target(x @ frame.to(x))


def conjugated(basis: Tensor, frame: Tensor) -> Tensor:
    """Generators in coordinates x = frame z, for an orthogonal frame."""
    return frame @ basis.double() @ frame.mT
