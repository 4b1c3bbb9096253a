"""What an action is, and how it is checked.

An action says how a group element moves a sample. Left actions everywhere: acting by h and then
by g is acting by gh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.lie.elements import Elements, as_given, precision_of

# A batch of samples: a tensor, or a dict or tuple of tensors with the batch axis first.
Batch: TypeAlias = Any


def map_tensors(function: Callable[[Tensor], Any], batch: Batch) -> Batch:
    """Apply a function to every tensor of a batch, keeping its dict or tuple structure."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(map_tensors(function, value) for value in batch)
    raise TypeError(
        f"a batch is a tensor, or a dict or tuple of tensors; found {type(batch).__name__}"
    )


def tensors_of(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, batch)
    return found


def batch_size(batch: Batch) -> int:
    """Number of samples; an error if the tensors of a structured batch disagree."""
    # Not len(), which would make a number of a size that torch.export leaves open.
    sizes = [tensor.shape[0] for tensor in tensors_of(batch)]
    if not sizes or any(size != sizes[0] for size in sizes):
        raise ValueError(f"the fields of a batch have different lengths: {sorted(set(sizes))}")
    return sizes[0]


def shape_of(x: Batch, name: str) -> tuple[int, ...]:
    """The shape of a tensor of real numbers, or an error that says what x is instead."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; this action moves a single tensor")
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}; an element moves real numbers: x.float()")
    return tuple(x.shape)


def at_least(x: Batch, dtype: torch.dtype) -> Batch:
    """A batch whose real numbers are in the precision to compute in, with others of that type."""

    def raised(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return tensor.to(precision_of(tensor.dtype, dtype))

    return map_tensors(raised, x)


def each_as_given(moved: Batch, x: Batch) -> Batch:
    """Every tensor of a batch that was moved, in the precision of the one that came in."""
    given = iter(tensors_of(x))
    return map_tensors(lambda tensor: as_given(tensor, next(given)), moved)


def in_one_precision(generator: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A generator and data in the precision to compute in with both."""
    dtype = precision_of(generator.dtype, x.dtype)
    return generator.to(dtype), x.to(dtype)


class Action(ABC):
    """How group elements move samples.

    Subclasses give `act`, and `differential` where they know it in closed form. Both compute in
    float32 or better and return the precision of x, see `Elements`.

    Attributes
    ----------
    dim
        Size d of the generators' matrices; 0 for an action that no element moves.
    space_dim
        D in ‖L‖_F = √D: the dimension of the space acted on.
    rows
        How many leading rows of a generator may differ from zero; the others are masked.
    usual_range
        A range of coefficients that suits it when none is given.
    """

    usual_range = 2.0

    def __init__(self, dim: int, *, space_dim: int | None = None, rows: int | None = None) -> None:
        self.dim = dim
        self.space_dim = dim if space_dim is None else space_dim
        self.rows = dim if rows is None else rows

    @property
    def mask(self) -> Tensor:
        """(d, d): the entries of a generator that mean something to this action."""
        mask = torch.zeros(self.dim, self.dim)
        mask[: self.rows] = 1.0
        return mask

    @abstractmethod
    def act(self, elements: Elements, x: Batch) -> Batch:
        """g·x for every element of every sample: (batch, …) to (batch, views, …)."""

    def differential(self, generator: Float[Tensor, "d d"], x: Batch) -> Batch:
        """d/dt exp(tL)·x at t = 0, the shape of x.

        Unless a subclass knows better: the central difference of `act`.
        """
        step = 1e-3
        coefficients = generator.new_tensor([step, -step]).view(1, 2, 1)
        elements = Elements(coefficients.expand(batch_size(x), -1, -1), generator.unsqueeze(0))

        def slope(y: Tensor) -> Tensor:
            if not y.is_floating_point():  # a field that does not move
                return torch.zeros_like(y[:, 0])
            return (y[:, 0] - y[:, 1]) / (2 * step)

        # In half precision nothing would be left of so small a difference.
        moved = self.act(elements, at_least(x, generator.dtype))
        return each_as_given(map_tensors(slope, moved), x)

    def check(self, x: Batch, name: str = "X") -> None:  # noqa: B027  # nothing to check is fine
        """Raise ValueError with a message for users if x is not a batch of these samples."""

    def moving(self, x: Batch) -> Tensor:
        """The numbers that the action can move, flattened: (batch, features)."""
        return x.flatten(1)

    def spread(self, x: Batch) -> Float[Tensor, " space"]:
        """How widely samples are spread along each coordinate of the space acted on, (D,).

        It is the unit of a displacement along it: a metre is far in one direction and nothing in
        another. All 1 unless a subclass knows which numbers are coordinates.
        """
        return torch.ones(self.space_dim, device=tensors_of(x)[0].device)

    def in_spreads(self, velocity: Batch, spread: Float[Tensor, " space"]) -> Batch:
        """How fast samples move, in units of the `spread` of each coordinate."""
        return velocity

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim})"


class FunctionAction(Action):
    """An action given by a function of matrices and samples, checked when it is built.

    Parameters
    ----------
    function
        ``function(g, x)`` with g of shape (n, d, d) and x (n, …), returning g·x of x's shape. Both
        come in one precision, float32 or better.
    dim
        d.
    example
        A few samples to check the function on: the identity must not move them, and acting twice
        must be acting by the product.
    check_on
        Generators of the group to check it on, (c, d, d), where the function is an action of that
        group only; all matrices that `rows` allows unless given. Learned generators may leave the
        group: fix them (`basis`), or say what may differ from zero (`mask`).
    rows
        How many leading rows of a generator may differ from zero, `dim` unless given: d - 1 in
        homogeneous coordinates, beside `AffineAction`.
    space_dim
        D of the normalisation, `rows` unless given.
    tolerance
        Largest relative error accepted in the check.

    Examples
    --------
    Spin-2 fields turn twice as fast as the frame:

    >>> def spin2(g, x):
    ...     return (g @ g @ x.unsqueeze(-1)).squeeze(-1)
    >>> from lieaugmenter.lie.catalogue import so
    >>> action = FunctionAction(spin2, dim=2, example=torch.randn(4, 2), check_on=so(2))
    >>> action
    FunctionAction(dim=2)
    """

    def __init__(
        self,
        function: Callable[[Tensor, Batch], Batch],
        dim: int,
        example: Batch,
        *,
        check_on: Tensor | None = None,
        rows: int | None = None,
        space_dim: int | None = None,
        tolerance: float = 1e-3,
    ) -> None:
        super().__init__(dim, space_dim=rows if space_dim is None else space_dim, rows=rows)
        self.function = function
        every = torch.eye(dim * dim).view(-1, dim, dim)[: self.rows * dim]
        error = composition_error(self, every if check_on is None else check_on, example)
        if not error <= tolerance:
            smaller = (
                ". It was tried on all matrices; if it is meant for a smaller group, give the "
                "generators of that one: check_on=catalogue.so(3), say"
            )
            raise ValueError(
                f"not an action: act(g, act(h, x)) differs from act(gh, x) by {error:.2g} of the "
                f"size of x (tolerance {tolerance:g}). The usual causes: the matrices multiply in "
                f"the wrong order (use g⁻¹ where the coordinates move), or a term is not linear "
                f"in the group{smaller if check_on is None else ''}"
            )

    def act(self, elements: Elements, x: Batch) -> Batch:
        real = [tensor.dtype for tensor in tensors_of(x) if tensor.is_floating_point()]
        matrices = elements.in_precision_for(precision_of(*real)).matrices().flatten(0, 1)
        views = elements.views
        repeated = map_tensors(lambda t: t.repeat_interleave(views, 0), at_least(x, matrices.dtype))
        with torch.autocast(matrices.device.type, enabled=False):
            moved = self.function(matrices, repeated)
        for before, after in zip(tensors_of(x), tensors_of(moved), strict=True):
            if after.shape[1:] != before.shape[1:]:
                raise ValueError(
                    f"the action's function turned samples of shape {tuple(before.shape[1:])} "
                    f"into {tuple(after.shape[1:])}; an action must keep the shape"
                )
        return map_tensors(lambda t: t.unflatten(0, (-1, views)), each_as_given(moved, x))

    def moving(self, x: Batch) -> Tensor:
        return torch.cat([tensor.flatten(1) for tensor in tensors_of(x)], dim=1)


def composition_error(
    action: Action,
    basis: Float[Tensor, "c d d"],
    x: Batch,
    *,
    scale: float = 0.3,
    generator: torch.Generator | None = None,
) -> float:
    """How far act(g, act(h, x)) is from act(gh, x), relative to the size of x.

    Parameters
    ----------
    action
        The action.
    basis
        Generators of the group to test on, (c, d, d).
    x
        A few samples.
    scale
        Standard deviation of the coefficients of g and h.
    generator
        Source of the coefficients; a fixed seed unless given.

    Returns
    -------
    float
        The larger of the relative errors of composition and of the identity.
    """
    rng = torch.Generator().manual_seed(0) if generator is None else generator
    # What half precision rounds off is no error of the action.
    x = at_least(x, torch.float32)
    n, c = batch_size(x), basis.shape[0]
    reference = tensors_of(x)[0]
    basis = basis.to(dtype=torch.get_default_dtype(), device=reference.device)
    draw = torch.randn((n, 1, 2, c), generator=rng) * scale
    both = draw.to(device=reference.device, dtype=basis.dtype)
    # Two factors of one element are the product gh; one at a time they are g and h.
    g, h = Elements(both[:, :, :1], basis), Elements(both[:, :, 1:], basis)

    def once(elements: Elements, batch: Batch) -> Batch:
        return map_tensors(lambda y: y.squeeze(1), action.act(elements, batch))

    twice, product = once(g, once(h, x)), once(Elements(both, basis), x)
    still = once(Elements(torch.zeros_like(both), basis), x)

    def apart(a: Batch, b: Batch) -> Tensor:
        size = action.moving(x).norm().clamp_min(1e-12)
        return (action.moving(a) - action.moving(b)).norm() / size

    # Not Python's max, which may pass over what is not a number.
    return float(torch.stack([apart(twice, product), apart(still, x)]).max())
