"""Muon (Jordan et al. 2024): Adam, but the matrices of hidden layers take orthogonalised steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Matrices with fewer rows or columns, such as embeddings and read-outs, are left to Adam.
_LEAST_SIDE = 64
# Of the momentum, as published.
_MOMENTUM = 0.95
# An odd polynomial that takes singular values between 0 and 1 near to 1, five times over.
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
# With it a step is about as long as one of Adam at the same rate (Liu et al. 2025).
_LIKE_ADAM = 0.2


class Muon(torch.optim.Adam):
    """Adam, but a matrix follows its momentum with all singular values made alike.

    Directions in which gradients are small, which Adam's entrywise scaling leaves behind, are then
    learned as fast as the others. Steps are scaled to the length of Adam's, so that both take the
    same learning rate.

    Parameters
    ----------
    groups
        Of parameters, as for any optimiser. Matrices of 64 or more rows and columns take
        orthogonalised steps, everything else those of Adam.
    lr
        Learning rate of both.
    options
        As for `torch.optim.Adam`.

    Examples
    --------
    >>> layer = torch.nn.Linear(64, 64)
    >>> optimizer = Muon([{"params": layer.parameters()}], lr=1e-3)
    >>> layer(torch.ones(1, 64)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(self, groups: Any, lr: float | Tensor = 1e-3, **options: Any) -> None:
        super().__init__(groups, lr=lr, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take a step of all parameters that have gradients."""
        found = None
        if closure is not None:
            with torch.enable_grad():
                found = closure()
        moved = [p for group in self.param_groups for p in self._follow(group)]
        gradients = [parameter.grad for parameter in moved]
        # Without a gradient Adam leaves them alone.
        for parameter in moved:
            parameter.grad = None
        super().step()
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.grad = gradient
        return found

    def _follow(self, group: dict[str, Any]) -> list[Tensor]:
        """Move the matrices of a group; which they are."""
        alike = defaultdict[tuple[int, ...], list[Tensor]](list)
        for parameter in group["params"]:
            if parameter.grad is not None and _is_hidden(parameter):
                alike[tuple(sorted(parameter.shape))].append(parameter)
        for parameters in alike.values():
            wide = torch.stack([_wide(ahead) for ahead in self._look_ahead(parameters)])
            length = _LIKE_ADAM * math.sqrt(wide.shape[-1]) * group["lr"]
            steps = [
                _as(step, parameter)
                for step, parameter in zip(orthogonal(wide) * length, parameters, strict=True)
            ]
            torch._foreach_sub_(parameters, steps)  # pyright: ignore[reportPrivateImportUsage]
        return [parameter for parameters in alike.values() for parameter in parameters]

    def _look_ahead(self, parameters: list[Tensor]) -> Sequence[Tensor]:
        """Gradients, mixed with the momentum that they have entered (Nesterov)."""
        momenta, gradients = [], []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                # Adam looks for a step in whatever state it is given back.
                state["step"] = torch.zeros((), device=parameter.device)
                state["momentum"] = torch.zeros_like(parameter)
            momenta.append(state["momentum"])
            gradients.append(parameter.grad)
        # One launch for all; torch's own optimisers use these as well.
        torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
        return torch._foreach_lerp(gradients, momenta, _MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]


def orthogonal(
    matrices: Float[Tensor, "batch rows columns"],
) -> Float[Tensor, "batch rows columns"]:
    """Matrices with the same singular vectors, and singular values between about 0.7 and 1.2.

    Parameters
    ----------
    matrices
        No more rows than columns. On a GPU products are in bfloat16: errors of a few per cent in
        what is an approximation anyway.

    Examples
    --------
    >>> values = torch.linalg.svdvals(orthogonal(torch.diag_embed(torch.tensor([[1.0, 0.1]]))))
    >>> bool(((0.6 < values) & (values < 1.3)).all())
    True
    """
    x = matrices / matrices.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]
    if x.is_cuda:
        x = x.bfloat16()
    first, third, fifth = _POLYNOMIAL
    for _ in range(_ROUNDS):
        square = x @ x.mT
        mixture = torch.baddbmm(square, square, square, beta=third, alpha=fifth)
        x = torch.baddbmm(x, mixture, x, beta=first)
    return x.to(matrices.dtype)


def _is_hidden(parameter: Tensor) -> bool:
    return parameter.ndim == 2 and min(parameter.shape) >= _LEAST_SIDE


def _wide(matrix: Tensor) -> Tensor:
    return matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix


def _as(step: Tensor, parameter: Tensor) -> Tensor:
    return step if step.shape == parameter.shape else step.mT
