"""Group elements as values: sampled once, they move x and y, are stored, replayed and inverted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lieaugmenter.lie.exponential import (
    LARGEST_SERIES,
    act_by_matrices,
    act_by_one_generator,
    act_by_series,
    exponentials,
    largest_norm,
    may_measure,
)

# Above this size a matrix per view costs more than the series on the vectors themselves.
_LARGEST_MATRIX = 16
# With one generator, up to this many series in a row cost less than matrices.
_FEW_SERIES = 2


@dataclass(frozen=True)
class Elements:
    """A batch of group elements, Eq. (1) and the product of exponentials, Eq. (12).

    Each element is g = r · exp(A_1) · … · exp(A_R) with A_s = sum_i w_i^(s) L_i, where r is one of
    the discrete `components` (the identity when there are none). With R = 1 and no components it
    is the paper's single exponential.

    Elements move data in float32, or in the highest precision of basis, coefficients, components
    and data if that is higher; what is moved comes back in the precision of the data.

    Parameters
    ----------
    coefficients
        w, (batch, views, factors, c) or (batch, views, c) for one factor.
    basis
        The generators L_i, (c, d, d).
    bound
        An upper bound on the norm of every A_s. Samplers know it in advance, so that a GPU need
        not be waited for; without it, and on a CPU, the norm is measured.
    components
        Discrete representatives r, (m, d, d), and for each element which one it uses.
    component_index
        (batch, views), integers below m.
    rows
        How many leading rows of the generators may differ from zero: d - 1 in homogeneous
        coordinates, all of them unless given. Knowing it saves time, nothing else.
    component_first
        True for elements exp(A_1) · … · exp(A_R) · r, in which r acts on x before the exponentials:
        the form that inverses take.

    Examples
    --------
    >>> turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
    >>> quarter = Elements(torch.full((1, 1, 1), torch.pi / 2), turn)
    >>> quarter.apply(torch.tensor([[1.0, 0.0]])).round(decimals=3).abs()
    tensor([[[0., 1.]]])
    """

    coefficients: Float[Tensor, "batch views *factors c"]
    basis: Float[Tensor, "c d d"]
    bound: float | None = None
    components: Float[Tensor, "m d d"] | None = None
    component_index: Int[Tensor, "batch views"] | None = None
    component_first: bool = False
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.coefficients.ndim == 3:
            object.__setattr__(self, "coefficients", self.coefficients.unsqueeze(2))
        if self.coefficients.ndim != 4 or self.coefficients.shape[-1] != self.basis.shape[0]:
            raise ValueError(
                f"coefficients of shape {tuple(self.coefficients.shape)} do not fit a basis of "
                f"{self.basis.shape[0]} generators; expected (batch, views, c)"
            )

    @classmethod
    def of_matrices(cls, matrices: Float[Tensor, "views d d"]) -> Elements:
        """Elements that are given as matrices, of one sample; see `for_each`.

        >>> turn = Elements.of_matrices(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]))
        >>> turn.apply(torch.tensor([[1.0, 0.0]]))
        tensor([[[0., 1.]]])
        """
        views, d, _ = matrices.shape
        return cls(
            matrices.new_zeros(1, views, 1),
            matrices.new_zeros(1, d, d),
            bound=0.0,
            components=matrices,
            component_index=torch.arange(views, device=matrices.device).unsqueeze(0),
        )

    @property
    def batch(self) -> int:
        """Number of samples."""
        return self.coefficients.shape[0]

    def of_samples(self, rows: slice) -> Elements:
        """The elements of some of the samples."""
        index = None if self.component_index is None else self.component_index[rows]
        return replace(self, coefficients=self.coefficients[rows], component_index=index)

    @property
    def views(self) -> int:
        """Number of elements of each sample (K)."""
        return self.coefficients.shape[1]

    @property
    def dim(self) -> int:
        """Size d of the matrices."""
        return self.basis.shape[-1]

    def _component(self) -> Float[Tensor, "batch views d d"] | None:
        if self.components is None or self.component_index is None:
            return None
        return self.components[self.component_index]

    @property
    def _known_norm(self) -> float | None:
        """The bound, where the norm is not to be measured."""
        return None if may_measure(self.basis) else self.bound

    @property
    def _free_rows(self) -> int | None:
        """`rows`, where nothing acts on the vectors after the exponential."""
        return self.rows if self.is_exponential else None

    @property
    def is_exponential(self) -> bool:
        """Whether each element is one exponential: R = 1 and no components."""
        return self.coefficients.shape[2] == 1 and self.components is None

    def exponents(self) -> Float[Tensor, "batch views factors d d"]:
        """A_s = sum_i w_i^(s) L_i of every factor."""
        own = self.in_precision_for(torch.float32)
        flat = own.coefficients.flatten(0, 2) @ own.basis.flatten(1)
        return flat.view(*self.coefficients.shape[:3], self.dim, self.dim)

    def _exponential(self, factor: int) -> Float[Tensor, "batch views d d"]:
        coefficients = self.coefficients[:, :, factor].flatten(0, 1)
        matrices = exponentials(self.basis, coefficients, self._known_norm, self.rows)
        return matrices.unflatten(0, (self.batch, self.views))

    def matrices(self) -> Float[Tensor, "batch views d d"]:
        """The elements as matrices, (batch, views, d, d)."""
        own = self.in_precision_for(torch.float32)
        if not self.batch:
            return own.basis.new_empty(0, self.views, self.dim, self.dim)
        with torch.autocast(self.basis.device.type, enabled=False):
            product = own._exponential(0)
            for factor in range(1, self.coefficients.shape[2]):
                product = product @ own._exponential(factor)
            component = own._component()
            if component is None:
                return product
            return product @ component if self.component_first else component @ product

    def inverse(self) -> Elements:
        """The inverse elements: exp(-A_R) · … · exp(-A_1) · r⁻¹."""
        components = self.components
        if components is not None:
            # There is no inverse in half precision.
            components = torch.linalg.inv(components.to(precision_of(components.dtype)))
        return replace(
            self,
            coefficients=-self.coefficients.flip(2),
            components=components,
            component_first=not self.component_first,
        )

    def per_view(self) -> Elements:
        """The same elements, one view for each of batch · views samples."""
        index = self.component_index
        return replace(
            self,
            coefficients=self.coefficients.flatten(0, 1).unsqueeze(1),
            component_index=None if index is None else index.reshape(-1, 1),
        )

    def for_each(self, batch: int) -> Elements:
        """The elements of a single sample, given to each of `batch` samples."""
        index = self.component_index
        return replace(
            self,
            coefficients=self.coefficients.expand(batch, -1, -1, -1),
            component_index=None if index is None else index.expand(batch, -1),
        )

    def apply(self, x: Float[Tensor, "batch *n d"]) -> Float[Tensor, "batch views *n d"]:
        """Move x by every element of every sample, all vectors of a sample moved alike.

        Runs in float32 or better, also under autocast, and returns the precision of x. Forms no
        matrix when it need not: one generator shares the powers of L between all views, many
        generators of a large d act by their series.

        Parameters
        ----------
        x
            (batch, ..., d).

        Returns
        -------
        Tensor
            (batch, views, ..., d).
        """
        if not x.shape[0]:
            return x.unsqueeze(1).expand(-1, self.views, *x.shape[1:])
        with torch.autocast(x.device.type, enabled=False):
            own = self.in_precision_for(x.dtype)
            flat = x.reshape(self.batch, math.prod(x.shape[1:-1]), self.dim)
            vectors = _cast(flat, own.basis.dtype)
            moved = own._apply_to_vectors(vectors)
            if moved.shape[-1] < self.dim:
                still = vectors[:, None, :, moved.shape[-1] :].expand(-1, self.views, -1, -1)
                moved = torch.cat([moved, still], dim=-1)
            return as_given(moved, x).reshape(self.batch, self.views, *x.shape[1:])

    def apply_to_points(
        self, points: Float[Tensor, "batch *n e"]
    ) -> Float[Tensor, "batch views *n e"]:
        """Move points of R^(d-1) by elements in homogeneous coordinates: p ↦ A p + b.

        Parameters
        ----------
        points
            (batch, ..., d - 1).

        Returns
        -------
        Tensor
            (batch, views, ..., d - 1).
        """
        if not points.shape[0]:
            return points.unsqueeze(1).expand(-1, self.views, *points.shape[1:])
        with torch.autocast(points.device.type, enabled=False):
            e = self.dim - 1
            own = self.in_precision_for(points.dtype)
            flat = points.reshape(self.batch, math.prod(points.shape[1:-1]), e)
            lifted = torch.nn.functional.pad(_cast(flat, own.basis.dtype), (0, 1), value=1.0)
            moved = own._apply_to_vectors(lifted)[..., :e]
            return as_given(moved, points).reshape(self.batch, self.views, *points.shape[1:])

    def in_precision_for(self, dtype: torch.dtype) -> Elements:
        """The same elements in the precision in which they move data of that type.

        Parameters
        ----------
        dtype
            Of the data.
        """
        components = self.components
        dtypes = {dtype, self.basis.dtype, self.coefficients.dtype}
        if components is not None:
            dtypes.add(components.dtype)
        dtype = precision_of(*dtypes)
        if dtypes == {dtype}:
            return self
        return replace(
            self,
            basis=self.basis.to(dtype),
            coefficients=self.coefficients.to(dtype),
            components=None if components is None else components.to(dtype),
        )

    def _apply_to_vectors(
        self, vectors: Float[Tensor, "batch n d"]
    ) -> Float[Tensor, "batch views n r"]:
        """The coordinates that can move: all d, or the first `rows`."""
        c = self.basis.shape[0]
        component = self._component()
        if component is not None and self.component_first:
            vectors = (vectors.unsqueeze(1) @ component.mT).flatten(0, 1)
            # A component may mix the rows that a generator leaves alone.
            alone = replace(self.per_view(), components=None, component_index=None, rows=None)
            return alone._apply_to_vectors(vectors).reshape(self.batch, self.views, -1, self.dim)
        moved = self._act_by_factor(self.coefficients[:, :, -1], vectors)
        for factor in range(self.coefficients.shape[2] - 2, -1, -1):
            own = self.coefficients[:, :, factor].reshape(-1, 1, c)
            moved = self._act_by_factor(own, moved.flatten(0, 1)).reshape(moved.shape)
        return moved if component is None else moved @ component.mT

    def _act_by_factor(self, coefficients: Tensor, vectors: Tensor) -> Tensor:
        c, d, _ = self.basis.shape
        bound = self._known_norm
        by_matrices = d <= _LARGEST_MATRIX or vectors.shape[1] >= d
        if c == 1:
            generator, weights = self.basis[0], coefficients.squeeze(-1)
            norm = largest_norm(generator, weights) if bound is None else bound
            # Squaring a matrix halves what is left; one more series only takes a step.
            if norm <= _FEW_SERIES * LARGEST_SERIES or not by_matrices:
                return act_by_one_generator(generator, weights, vectors, norm)
        if by_matrices:
            return act_by_matrices(self.basis, coefficients, vectors, bound, self._free_rows)
        return act_by_series(self.basis, coefficients, vectors, bound)


def precision_of(*dtypes: torch.dtype) -> torch.dtype:
    """The precision to compute in with data of these types: float32, or the highest of them.

    >>> precision_of(torch.float16, torch.bfloat16), precision_of(torch.float16, torch.float64)
    (torch.float32, torch.float64)
    """
    return reduce(torch.promote_types, dtypes, torch.float32)


def as_given(moved: Tensor, x: Tensor) -> Tensor:
    """What was moved in the precision of x, which came in; whole numbers would be rounded."""
    return _cast(moved, x.dtype) if x.is_floating_point() else moved


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    # Asked here, because x.to() is a call of its own in every step.
    return x if x.dtype == dtype else x.to(dtype)
