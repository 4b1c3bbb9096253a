"""Which generators to ask a model about: of a named group, of a file or a run, or given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action
from lieaugmenter.lie import catalogue
from lieaugmenter.runs import read_json, read_tensors

# Families of the catalogue that are written in homogeneous coordinates.
_HOMOGENEOUS = ("aff", "se", "translations")


def generators_of(
    group: str | Path | Float[Tensor, "c d d"],
    action: Action,
    axes: Sequence[int] | None = None,
) -> tuple[str, Float[Tensor, "c d d"]]:
    """The name and the generators of a group, in the size that an action needs.

    Parameters
    ----------
    group, axes
        As `audit` takes them.
    action
        The action.

    Examples
    --------
    >>> from lieaugmenter.actions import VectorAction
    >>> generators_of("so(2)", VectorAction(3), axes=[0, 2])[1][0]
    tensor([[ 0.,  0., -1.],
            [ 0.,  0.,  0.],
            [ 1.,  0.,  0.]])
    """
    if isinstance(group, Tensor):
        name, generators = "the given generators", group
    elif Path(group).is_dir() or Path(group).suffix == ".json":
        name, generators = f"the generators of {group}", _learned(Path(group))
    else:
        return _named(str(group), action, axes)
    if axes is not None:
        raise ValueError("axes are for named groups; the given generators say what they move")
    return name, _fitting(name, generators, action)


def _learned(path: Path) -> Tensor:
    if path.is_dir():
        tensors, _ = read_tensors(path / "basis.safetensors")
        found = tensors.get("generators")
    else:
        content = read_json(path)
        found = content.get("generators") if isinstance(content, dict) else None
    if found is None:
        raise ValueError(f"{path} holds no generators")
    try:
        return torch.as_tensor(found, dtype=torch.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{path}: generators must be numbers of shape (c, d, d)") from None


def _fitting(name: str, generators: Tensor, action: Action) -> Tensor:
    """Generators as they are, if they fit the action."""
    d = action.dim
    if generators.ndim != 3 or tuple(generators.shape[1:]) != (d, d) or not len(generators):
        raise ValueError(
            f"{name}: generators of shape {tuple(generators.shape)} do not fit {action}, which "
            f"needs (c, {d}, {d})"
        )
    if not bool(generators.isfinite().all()):
        raise ValueError(f"{name} hold values that are not finite")
    if bool((generators * (1 - action.mask.to(generators))).abs().amax() > 0):
        raise ValueError(
            f"{name} have entries below row {action.rows}, which {action} does not have: "
            f"points move as A p + b with b in the last column. Are they transposed?"
        )
    return generators


def _named(name: str, action: Action, axes: Sequence[int] | None) -> tuple[str, Tensor]:
    basis = catalogue.named(name)
    translates = name.strip().lower().startswith(_HOMOGENEOUS)
    if translates and action.rows == action.dim:
        raise ValueError(
            f"{name} translates points, which {action} does not: use action 'affine' for points "
            f"or 'image' for images"
        )
    needed, space = basis.shape[-1] - translates, action.rows
    chosen = list(range(space)) if axes is None else list(axes)
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(space)):
        raise ValueError(f"axes {chosen}: give different ones of 0 to {space - 1}")
    alike = axes is not None and not translates and len(chosen) % needed == 0
    if len(chosen) != needed and not (alike and chosen):
        given = f"samples have {space} (is the target among them?)"
        if axes is not None:
            given = f"{len(chosen)} axes are given"
        raise ValueError(
            f"{name} moves {needed} coordinates, but {given}. Say with axes which coordinates it "
            f"moves; several times {needed} of them for vectors that move alike"
        )
    if not translates:
        basis = catalogue.diagonal(basis, len(chosen) // needed)
    index = torch.tensor([*chosen, action.dim - 1] if translates else chosen)
    placed = torch.zeros(len(basis), action.dim, action.dim)
    placed[:, index[:, None], index] = basis
    where = "" if axes is None else f" on axes {', '.join(map(str, chosen))}"
    return f"{name.strip()}{where}", placed
