"""Checks that return a number, and assertions on top of them: for our tests and for yours."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import (
    Action,
    Batch,
    at_least,
    batch_size,
    composition_error,
    map_tensors,
)
from lieaugmenter.actions.linear import InvariantAction
from lieaugmenter.lie.elements import Elements
from lieaugmenter.nets.mode import evaluating


@torch.no_grad()
def equivariance_error(
    model: Callable[[Batch], Tensor],
    basis: Float[Tensor, "c d d"],
    x: Batch,
    *,
    action: Action,
    output: Action | None = None,
    range: float = 1.0,
    n_views: int = 8,
    seed: int = 0,
) -> float:
    """How far a model is from being equivariant: mean ‖f(gx) - g f(x)‖ relative to mean ‖f(x)‖.

    Parameters
    ----------
    model
        f, asked in evaluation mode.
    basis
        Generators of the group, (c, d, d).
    x
        Samples to test on.
    action, output
        How elements move inputs and outputs; outputs are invariant unless told.
    range
        Coefficients are drawn from [-range, range].
    n_views
        Elements for each sample.
    seed
        Of the coefficients.

    Returns
    -------
    float
        0 for an equivariant model; near 1 or above for an arbitrary one.
    """
    output = InvariantAction() if output is None else output
    basis = _checked_basis(basis, action)
    n = batch_size(x)
    if not n:
        raise ValueError("x has no samples: there is nothing to test the model on")
    rng = torch.Generator().manual_seed(seed)
    draw = (torch.rand(n, n_views, len(basis), generator=rng) * 2 - 1) * range
    elements = Elements(draw.to(basis), basis)
    views = map_tensors(lambda t: t.flatten(0, 1), action.act(elements, x))
    with evaluating(model):
        moved_first, direct = model(views).unflatten(0, (n, n_views)), model(x)
    # Reshaped, not flattened: a model may give one number for each sample, (n,).
    gap = (moved_first - output.act(elements, direct)).reshape(n, n_views, -1)
    size = direct.reshape(n, -1).norm(dim=1).mean().clamp_min(1e-30)
    return float(gap.norm(dim=2).mean() / size)


def _checked_basis(basis: Float[Tensor, "c d d"], action: Action) -> Float[Tensor, "c d d"]:
    if not isinstance(action, Action):
        raise TypeError(f"action is {action!r}; give an Action, such as VectorAction(3)")
    basis = torch.as_tensor(basis)
    if basis.ndim != 3 or basis.shape[1:] != (action.dim, action.dim):
        raise ValueError(
            f"the basis has shape {tuple(basis.shape)}; generators of {action} are (c, "
            f"{action.dim}, {action.dim})"
        )
    # Coefficients are drawn in its type: whole numbers would all be 0.
    return basis if basis.is_floating_point() else basis.to(torch.get_default_dtype())


def assert_equivariant(
    model: Callable[[Batch], Tensor],
    basis: Float[Tensor, "c d d"],
    x: Batch,
    *,
    action: Action,
    output: Action | None = None,
    tolerance: float = 1e-4,
    range: float = 1.0,
) -> None:
    """Raise AssertionError unless `equivariance_error` is within the tolerance."""
    error = equivariance_error(model, basis, x, action=action, output=output, range=range)
    assert error <= tolerance, f"equivariance error {error:.3g} exceeds {tolerance:g}"


def differential_error(action: Action, generator: Float[Tensor, "d d"], x: Batch) -> float:
    """How far `differential` is from the derivative of `act` at the identity, relative to it."""
    step = 1e-3 if generator.dtype == torch.float32 else 1e-5
    x = at_least(x, generator.dtype)
    ends = generator.new_tensor([step, -step]).view(1, 2, 1).expand(batch_size(x), -1, -1)
    moved = action.act(Elements(ends, generator.unsqueeze(0)), x)
    forward, backward = (action.moving(map_tensors(lambda t, i=i: t[:, i], moved)) for i in (0, 1))
    slope = (forward - backward) / (2 * step)
    stated = action.moving(action.differential(generator, x))
    return float((slope - stated).norm() / slope.norm().clamp_min(1e-12))


def assert_action(
    action: Action,
    basis: Float[Tensor, "c d d"],
    x: Batch,
    *,
    tolerance: float = 1e-3,
) -> None:
    """Raise AssertionError unless acting composes, fixes x at the identity, and has its derivative.

    Parameters
    ----------
    action
        The action.
    basis
        Generators to test on.
    x
        A few samples.
    tolerance
        Largest relative error.
    """
    composed = composition_error(action, basis, x)
    assert composed <= tolerance, f"act(g, act(h, x)) differs from act(gh, x) by {composed:.3g}"
    for generator in basis:
        slope = differential_error(action, generator, x)
        assert slope <= tolerance, f"differential differs from the derivative by {slope:.3g}"
