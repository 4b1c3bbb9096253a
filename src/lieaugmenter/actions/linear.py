"""Linear actions: vectors, stacks of vectors, direct sums, four-momenta, and no action at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, in_one_precision, shape_of
from lieaugmenter.actions.spatial import AffineAction, DisplacementAction
from lieaugmenter.lie.elements import Elements, as_given
from lieaugmenter.lie.units import spread_of


class VectorAction(Action):
    """g·x = g x on the last axis, Eq. (11); the same element on every vector of a sample.

    A sample is one vector (batch, d), or a stack of them (batch, …, d): time steps, particles.

    Parameters
    ----------
    dim
        d.
    """

    def act(
        self, elements: Elements, x: Float[Tensor, "batch *n d"]
    ) -> Float[Tensor, "batch views *n d"]:
        return elements.apply(x)

    def differential(
        self, generator: Float[Tensor, "d d"], x: Float[Tensor, "batch *n d"]
    ) -> Float[Tensor, "batch *n d"]:
        """L x."""
        generator, vectors = in_one_precision(generator, x)
        return as_given(vectors @ generator.mT, x)

    def spread(self, x: Float[Tensor, "batch *n d"]) -> Float[Tensor, " d"]:
        return spread_of(x)

    def in_spreads(
        self, velocity: Float[Tensor, "batch *n d"], spread: Float[Tensor, " d"]
    ) -> Float[Tensor, "batch *n d"]:
        return velocity / spread

    def check(self, x: Batch, name: str = "X") -> None:
        shape = shape_of(x, name)
        if len(shape) < 2 or shape[-1] != self.dim:
            raise ValueError(
                f"{name} has shape {shape}. This action moves vectors of {self.dim} numbers and "
                f"expects (N, {self.dim}) or, for several vectors that move alike, "
                f"(N, …, {self.dim})"
            )


class FourVectorAction(VectorAction):
    """Four-momenta (E, px, py, pz) on the last axis, (batch, …, 4)."""

    # A coefficient of 0.3 is a rapidity of 0.42; at 2 a boost multiplies energies by 8.
    usual_range = 0.3

    def __init__(self) -> None:
        super().__init__(4)

    def check(self, x: Batch, name: str = "X") -> None:
        shape = shape_of(x, name)
        if len(shape) < 2 or shape[-1] != 4:
            raise ValueError(
                f"{name} has shape {shape}. action='fourvector' expects (N, 4) or "
                f"(N, particles, 4) with (E, px, py, pz) last"
            )

    def __repr__(self) -> str:
        return "FourVectorAction()"


class InvariantAction(Action):
    """Nothing moves: ρ(g) = I."""

    def __init__(self) -> None:
        super().__init__(0)

    def act(
        self, elements: Elements, x: Shaped[Tensor, "batch *n"]
    ) -> Shaped[Tensor, "batch views *n"]:
        return x.unsqueeze(1).expand(-1, elements.views, *x.shape[1:])

    def differential(
        self, generator: Float[Tensor, "d d"], x: Shaped[Tensor, "batch *n"]
    ) -> Shaped[Tensor, "batch *n"]:
        """Zero."""
        return torch.zeros_like(x)

    def __repr__(self) -> str:
        return "InvariantAction()"


class DirectSumAction(Action):
    """Consecutive groups of columns, each moved by the same element in its own way.

    Parameters
    ----------
    parts
        Pairs (action, columns): how many columns of the last axis it takes. A `VectorAction` of
        dimension d may take a multiple of d columns: that many vectors, moved alike.

    Examples
    --------
    Position, mass and velocity, of which the mass stays:

    >>> action = DirectSumAction(
    ...     [(VectorAction(3), 3), (InvariantAction(), 1), (VectorAction(3), 3)]
    ... )
    >>> action.dim, action.columns
    (3, 7)
    """

    def __init__(self, parts: Sequence[tuple[Action, int]]) -> None:
        shapes = {(a.dim, a.space_dim, a.rows) for a, _ in parts if a.dim}
        if len(shapes) != 1:
            dims = sorted(dim for dim, _, _ in shapes)
            raise ValueError(
                f"the parts of a direct sum must share one size of matrix; found {dims}"
            )
        for action, columns in parts:
            if columns < 1 or (_moves_vectors(action) and columns % action.space_dim):
                raise ValueError(
                    f"{action} takes whole vectors of {action.space_dim} columns, not {columns}"
                )
        dim, space_dim, rows = shapes.pop()
        super().__init__(dim, space_dim=space_dim, rows=rows)
        self.parts = tuple(parts)
        self.columns = sum(columns for _, columns in parts)

    def _split(self, x: Tensor) -> list[tuple[Action, Tensor]]:
        pieces = x.split([columns for _, columns in self.parts], dim=-1)
        return [(action, piece) for (action, _), piece in zip(self.parts, pieces, strict=True)]

    @staticmethod
    def _as_vectors(action: Action, piece: Tensor) -> Tensor:
        return piece.unflatten(-1, (-1, action.space_dim)) if _moves_vectors(action) else piece

    def act(
        self, elements: Elements, x: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch views columns"]:
        moved = [
            action.act(elements, self._as_vectors(action, piece)).flatten(2)
            for action, piece in self._split(x)
        ]
        return torch.cat(moved, dim=-1)

    def differential(
        self, generator: Float[Tensor, "d d"], x: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch columns"]:
        moved = [
            action.differential(generator, self._as_vectors(action, piece)).flatten(1)
            for action, piece in self._split(x)
        ]
        return torch.cat(moved, dim=-1)

    def spread(self, x: Float[Tensor, "batch columns"]) -> Float[Tensor, " d"]:
        vectors = [
            self._as_vectors(action, piece)
            for action, piece in self._split(x)
            if _moves_vectors(action)
        ]
        return spread_of(torch.cat(vectors, dim=1)) if vectors else super().spread(x)

    def in_spreads(
        self, velocity: Float[Tensor, "batch columns"], spread: Float[Tensor, " d"]
    ) -> Float[Tensor, "batch columns"]:
        moved = [
            action.in_spreads(self._as_vectors(action, piece), spread).flatten(1)
            for action, piece in self._split(velocity)
        ]
        return torch.cat(moved, dim=-1)

    def check(self, x: Batch, name: str = "X") -> None:
        shape = shape_of(x, name)
        if len(shape) != 2 or shape[-1] != self.columns:
            raise ValueError(
                f"{name} has shape {shape}; this direct sum expects (N, {self.columns})"
            )

    def __repr__(self) -> str:
        return f"DirectSumAction({list(self.parts)})"


def _moves_vectors(action: Action) -> bool:
    """Whether an action moves any number of vectors of a sample alike."""
    return isinstance(action, VectorAction | AffineAction | DisplacementAction)
