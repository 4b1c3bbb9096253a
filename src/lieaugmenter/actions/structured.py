"""Inputs of several fields, of which an action moves some and leaves others alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch
from lieaugmenter.lie.elements import Elements


class StructuredAction(Action):
    """An action on dict or tuple inputs, field by field.

    Parameters
    ----------
    fields
        For each field that moves, by key or position, its action. All other fields stay.
    masks
        For a field of padded points, the field that holds its mask (batch, points), non-zero for
        real points. Padded points are put back where they were.

    Examples
    --------
    A molecule: charges stay, positions move, padded atoms stay at the origin.

    >>> from lieaugmenter.actions.spatial import AffineAction
    >>> molecules = StructuredAction({"positions": AffineAction(3)}, masks={"positions": "real"})
    >>> molecules.dim
    4
    """

    def __init__(
        self,
        fields: Mapping[str | int, Action],
        *,
        masks: Mapping[str | int, str | int] | None = None,
    ) -> None:
        shapes = {(action.dim, action.space_dim, action.rows) for action in fields.values()}
        if len(shapes) != 1:
            raise ValueError(
                f"the fields of a structured action must share one size of matrix; found "
                f"{ {name: action.dim for name, action in fields.items()} }"
            )
        dim, space_dim, rows = shapes.pop()
        super().__init__(dim, space_dim=space_dim, rows=rows)
        self.fields = dict(fields)
        self.masks = dict(masks or {})
        unknown = sorted(map(str, set(self.masks) - set(self.fields)))
        if unknown:
            raise ValueError(f"masks name fields that do not move: {', '.join(unknown)}")

    def _each(self, x: Batch) -> dict[str | int, Tensor]:
        items: dict[str | int, Tensor] = dict(x if isinstance(x, Mapping) else enumerate(x))
        missing = [name for name in [*self.fields, *self.masks.values()] if name not in items]
        if missing:
            raise ValueError(f"the input has no field {missing[0]!r}; it has {list(items)}")
        return items

    @staticmethod
    def _rebuild(x: Batch, items: dict[str | int, Tensor]) -> Batch:
        return items if isinstance(x, Mapping) else tuple(items.values())

    def _real(self, name: str | int, items: dict[str | int, Tensor]) -> Tensor | None:
        if name not in self.masks:
            return None
        mask = items[self.masks[name]].bool()
        return mask.view(*mask.shape, *[1] * (items[name].ndim - mask.ndim))

    def act(self, elements: Elements, x: Batch) -> Batch:
        items = self._each(x)
        moved = {}
        for name, tensor in items.items():
            still = tensor.unsqueeze(1).expand(-1, elements.views, *tensor.shape[1:])
            if name not in self.fields:
                moved[name] = still
                continue
            moved[name] = self.fields[name].act(elements, tensor)
            real = self._real(name, items)
            if real is not None:
                moved[name] = torch.where(real.unsqueeze(1), moved[name], still)
        return self._rebuild(x, moved)

    def differential(self, generator: Float[Tensor, "d d"], x: Batch) -> Batch:
        items = self._each(x)
        moved = {name: torch.zeros_like(tensor) for name, tensor in items.items()}
        for name, action in self.fields.items():
            moved[name] = action.differential(generator, items[name])
            real = self._real(name, items)
            if real is not None:
                moved[name] = moved[name] * real
        return self._rebuild(x, moved)

    def check(self, x: Batch, name: str = "X") -> None:
        if not isinstance(x, Mapping | tuple | list):
            raise ValueError(f"{name} is a {type(x).__name__}; expected a dict or tuple of fields")
        items = self._each(x)
        for field, action in self.fields.items():
            action.check(items[field], f"{name}[{field!r}]")

    def moving(self, x: Batch) -> Tensor:
        items = self._each(x)
        flat = [action.moving(items[name]) for name, action in self.fields.items()]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)

    def spread(self, x: Batch) -> Float[Tensor, " space"]:
        """Of the coordinates of all fields together; padded points do not count."""
        items = self._each(x)
        spreads = []
        for name, action in self.fields.items():
            mask = self.masks.get(name)
            points = items[name] if mask is None else items[name][items[mask].bool()]
            spreads.append(action.spread(points))
        return torch.stack(spreads).square().mean(0).sqrt()

    def in_spreads(self, velocity: Batch, spread: Float[Tensor, " space"]) -> Batch:
        items = self._each(velocity)
        moved = {name: a.in_spreads(items[name], spread) for name, a in self.fields.items()}
        return self._rebuild(velocity, items | moved)

    def __repr__(self) -> str:
        return f"StructuredAction({self.fields})"
