"""How equivariant a predictor is: the paper's two errors, and the infinitesimal defect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, map_tensors, tensors_of
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.units import spread_of
from lieaugmenter.nets.mode import evaluating

# How far samples are moved for a difference, in units of how widely they are spread.
_STEP = 1e-2
# A feature that is spread by less, relative to its size, counts as spread by this: a step has to
# be many times as long as numbers in single precision are apart.
_LEAST_SPREAD = 3e-4


def _both_ways(
    model: Callable[[Batch], Tensor],
    x: Batch,
    elements: Elements,
    action: Action,
    output: Action,
) -> tuple[Tensor, Tensor]:
    """Ψ(g x) and g Ψ(x), (batch, views, …)."""
    views = map_tensors(lambda t: t.flatten(0, 1), action.act(elements, x))
    with evaluating(model):
        moved_first = model(views).unflatten(0, (elements.batch, elements.views))
        return moved_first, output.act(elements, model(x))


@torch.no_grad()
def equivariance_errors(
    model: Callable[[Batch], Tensor],
    x: Batch,
    elements: Elements,
    *,
    action: Action,
    output: Action,
) -> tuple[float, float]:
    """The paper's two errors, from the same predictions.

    Returns
    -------
    tuple
        `averaged_equivariance_error` and `equivariance_error`.
    """
    moved_first, moved_last = _both_ways(model, x, elements, action, output)
    averaged = (moved_last.mean(1) - moved_first.mean(1)).flatten(1).abs().sum(1).mean()
    own = (moved_first - moved_last).flatten(2).abs().sum(2).mean()
    return float(averaged), float(own)


def averaged_equivariance_error(
    model: Callable[[Batch], Tensor],
    x: Batch,
    elements: Elements,
    *,
    action: Action,
    output: Action,
) -> float:
    """The paper's error, Eq. (40): both sides averaged over the elements before the norm.

    Errors of different elements can cancel here; `equivariance_error` does not let them.

    Returns
    -------
    float
        Mean over samples of the L1 norm over outputs.
    """
    return equivariance_errors(model, x, elements, action=action, output=output)[0]


def equivariance_error(
    model: Callable[[Batch], Tensor],
    x: Batch,
    elements: Elements,
    *,
    action: Action,
    output: Action,
) -> float:
    """The paper's second error: mean over samples and elements of ‖Ψ(g x) - g Ψ(x)‖₁.

    It is the sample mean of the self-consistency discrepancy, Eq. (28).
    """
    return equivariance_errors(model, x, elements, action=action, output=output)[1]


@torch.no_grad()
def distance_from_identity(elements: Elements) -> float:
    """Mean of ‖g - I‖_F over elements: how far the augmentations reach."""
    identity = torch.eye(elements.dim, dtype=elements.basis.dtype, device=elements.basis.device)
    return float((elements.matrices() - identity).flatten(2).norm(dim=2).mean())


def lie_derivative(
    model: Callable[[Batch], Tensor],
    x: Batch,
    generator: Float[Tensor, "d d"],
    *,
    action: Action,
    output: Action,
) -> Float[Tensor, "batch out"]:
    """J_Ψ(x) · (L x) - L Ψ(x): zero when Ψ is equivariant under exp(tL), for small t.

    Parameters
    ----------
    model
        Ψ, differentiable.
    x
        A batch.
    generator
        L.
    action, output
        How L acts on inputs and on outputs.

    Returns
    -------
    Tensor
        (batch, outputs).
    """
    return lie_derivatives(model, x, [generator], action=action, output=output)[0]


def lie_derivatives(
    model: Callable[[Batch], Tensor],
    x: Batch,
    generators: Float[Tensor, "c d d"] | Sequence[Float[Tensor, "d d"]],
    *,
    action: Action,
    output: Action,
) -> Float[Tensor, "c batch out"]:
    """`lie_derivative` along each of some generators.

    Where these are more than a sample has numbers, the derivatives by the numbers are taken, and
    put together for all generators. No sample may depend on another.
    """
    velocities = [action.differential(generator, x) for generator in generators]
    if len(velocities) <= sum(t[:1].numel() for t in _floating(x)):
        pushed = [push_forward(model, x, velocity) for velocity in velocities]
        prediction, along = pushed[0][0], torch.stack([change for _, change in pushed])
    else:
        prediction, along = _by_numbers(model, x, velocities)
    if prediction.ndim == 1:
        prediction = prediction.unsqueeze(1)
    turned = torch.stack([output.differential(generator, prediction) for generator in generators])
    return (along.reshape(turned.shape) - turned).flatten(2).detach()


def _by_numbers(
    model: Callable[[Batch], Tensor], x: Batch, velocities: Sequence[Batch]
) -> tuple[Tensor, Float[Tensor, "c batch out"]]:
    """Ψ(x), and J_Ψ(x) v for every velocity, from the derivatives by each number of a sample."""
    for velocity in velocities:
        _check_movable(x, velocity)
    prediction, slopes = jacobian(model, x)
    moved = [torch.cat([v.flatten(1) for v in _floating(velocity)], 1) for velocity in velocities]
    return prediction, (torch.stack(moved, dim=1).to(slopes) @ slopes).transpose(0, 1)


def jacobian(
    model: Callable[[Batch], Tensor], x: Batch
) -> tuple[Tensor, Float[Tensor, "batch numbers out"]]:
    """Ψ(x) and J_Ψ(x), by every floating-point number of a sample; none may depend on another.

    >>> x = torch.tensor([[2.0, 3.0]])
    >>> jacobian(lambda x: x.prod(1), x)
    (tensor([6.]), tensor([[[3.],
             [2.]]]))
    """
    still = map_tensors(lambda t: torch.zeros(t.shape, dtype=t.dtype, device=t.device), x)
    columns, prediction = [], torch.empty(0)
    for field in _floating(still):
        numbers = field.view(len(field), -1)
        for i in range(numbers.shape[1]):
            numbers[:, i] = 1.0
            prediction, column = push_forward(model, x, still)
            # Of a part of the sample it is a view of what changes next.
            columns.append(column.detach().clone().reshape(len(field), -1))
            numbers[:, i] = 0.0
    return prediction.detach(), torch.stack(columns, dim=1)


def _floating(x: Batch) -> list[Tensor]:
    """The fields that can move."""
    return [t for t in tensors_of(x) if t.is_floating_point()]


def _check_movable(x: Batch, velocity: Batch) -> None:
    fields = zip(tensors_of(x), tensors_of(velocity), strict=True)
    if not _floating(x) or any(v.any() for t, v in fields if not t.is_floating_point()):
        raise ValueError("the Lie derivative needs floating-point inputs in every field that moves")


def push_forward(
    model: Callable[[Batch], Tensor], x: Batch, velocity: Batch
) -> tuple[Tensor, Tensor]:
    """Ψ(x) and J_Ψ(x) v: how fast a prediction changes when samples move with velocity v.

    Fields of whole numbers, such as charges, and of truth values cannot move.
    """
    _check_movable(x, velocity)
    fields = list(zip(tensors_of(x), tensors_of(velocity), strict=True))
    moving = tuple(t for t, _ in fields if t.is_floating_point())
    speeds = tuple(v for t, v in fields if t.is_floating_point())

    def of_moving(given: Sequence[Tensor]) -> Tensor:
        new = iter(given)
        return model(map_tensors(lambda t: next(new) if t.is_floating_point() else t, x))

    try:
        prediction, pushed, *_ = torch.func.jvp(of_moving, (moving,), (speeds,))
    except torch.OutOfMemoryError:
        raise
    except (NotImplementedError, RuntimeError):
        # Recurrent and attention layers have no forward derivative: take a central difference.
        prediction, pushed = model(x), _central_difference(of_moving, moving, speeds)
    return prediction, pushed


@torch.no_grad()
def _central_difference(
    model: Callable[[Sequence[Tensor]], Tensor], x: Sequence[Tensor], velocity: Sequence[Tensor]
) -> Tensor:
    rounding = max(torch.finfo(t.dtype).eps for t in x)
    # In half precision longer steps: there the rounding of both ends weighs more than a curve.
    time = max(_STEP, rounding ** (1 / 3)) / _speed(x, velocity)

    def after(time: float) -> Tensor:
        return model([t + time * v for t, v in zip(x, velocity, strict=True)])

    return (after(time) - after(-time)) / (2 * time)


def _speed(x: Sequence[Tensor], velocity: Sequence[Tensor]) -> float:
    """How fast samples move, in units of the spread of each feature: root mean square of those
    that do, 1 where none does.
    """
    pairs = zip(x, velocity, strict=True)
    speeds = torch.cat([(_rows(v) / _units(_rows(t))).flatten() for t, v in pairs])
    moving = speeds[speeds.isfinite() & (speeds != 0)]
    return float(moving.square().mean().sqrt()) if len(moving) else 1.0


def _rows(values: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
    return values.unsqueeze(1).flatten(1).double()


def _units(rows: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
    """The spread of each feature, but no less than what rounding leaves of a step."""
    size = rows.square().mean(0).sqrt()
    return torch.maximum(spread_of(rows), _LEAST_SPREAD * size)
