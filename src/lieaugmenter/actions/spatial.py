"""Actions on space: points and their differences, and images by warping their grid.

Convention for images: the coordinate frame has its origin at the centre, x to the right, y UP, and
half of the longer side as the unit, so that a rotation is a rotation for any aspect ratio. The
rotation E_21 - E_12 turns counter-clockwise as displayed: a quarter turn is ``torch.rot90``.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from lieaugmenter.actions import image_kernels
from lieaugmenter.actions.base import Action, Batch, in_one_precision, shape_of
from lieaugmenter.lie import kernels
from lieaugmenter.lie.constants import constant
from lieaugmenter.lie.elements import Elements, as_given
from lieaugmenter.lie.units import spread_of


class AffineAction(Action):
    """p ↦ A p + b on points of R^n: generators of size n + 1 in homogeneous coordinates.

    A sample is one point (batch, n) or a set of them (batch, …, n), moved alike. Padded points of
    a structured input are put back by `StructuredAction`.

    Parameters
    ----------
    space_dim
        n.
    """

    def __init__(self, space_dim: int) -> None:
        super().__init__(space_dim + 1, space_dim=space_dim, rows=space_dim)

    def act(
        self, elements: Elements, x: Float[Tensor, "batch *n e"]
    ) -> Float[Tensor, "batch views *n e"]:
        return elements.apply_to_points(x)

    def differential(
        self, generator: Float[Tensor, "d d"], x: Float[Tensor, "batch *n e"]
    ) -> Float[Tensor, "batch *n e"]:
        """A p + b with the generator's blocks A and b."""
        e = self.space_dim
        generator, points = in_one_precision(generator, x)
        return as_given(points @ generator[:e, :e].mT + generator[:e, e], x)

    def spread(self, x: Float[Tensor, "batch *n e"]) -> Float[Tensor, " e"]:
        return spread_of(x)

    def in_spreads(
        self, velocity: Float[Tensor, "batch *n e"], spread: Float[Tensor, " e"]
    ) -> Float[Tensor, "batch *n e"]:
        return velocity / spread

    def check(self, x: Batch, name: str = "X") -> None:
        shape = shape_of(x, name)
        if len(shape) < 2 or shape[-1] != self.space_dim:
            raise ValueError(
                f"{name} has shape {shape}. action='affine' in {self.space_dim} dimensions "
                f"expects (N, {self.space_dim}) or (N, points, {self.space_dim})"
            )

    def __repr__(self) -> str:
        return f"AffineAction(space_dim={self.space_dim})"


class DisplacementAction(Action):
    """v ↦ A v on vectors of R^n, where `AffineAction` moves points p ↦ A p + b.

    Forces, velocities, dipoles and other differences of points turn, stretch and shear with them,
    but are not translated. A sample is one vector (batch, n) or several (batch, …, n).

    Parameters
    ----------
    space_dim
        n; generators have size n + 1, as those of `AffineAction`.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import translations
    >>> shift = Elements(torch.tensor([[[5.0, 0.0]]]), translations(2))
    >>> DisplacementAction(2).act(shift, torch.tensor([[1.0, 2.0]]))
    tensor([[[1., 2.]]])
    """

    def __init__(self, space_dim: int) -> None:
        super().__init__(space_dim + 1, space_dim=space_dim, rows=space_dim)

    def act(
        self, elements: Elements, x: Float[Tensor, "batch *n e"]
    ) -> Float[Tensor, "batch views *n e"]:
        # A difference of points (p, 1) - (q, 1) has 0 where a point has 1.
        return elements.apply(pad(x, (0, 1)))[..., : self.space_dim]

    def differential(
        self, generator: Float[Tensor, "d d"], x: Float[Tensor, "batch *n e"]
    ) -> Float[Tensor, "batch *n e"]:
        """A v with the generator's block A."""
        e = self.space_dim
        generator, vectors = in_one_precision(generator, x)
        return as_given(vectors @ generator[:e, :e].mT, x)

    def spread(self, x: Float[Tensor, "batch *n e"]) -> Float[Tensor, " e"]:
        return spread_of(x)

    def in_spreads(
        self, velocity: Float[Tensor, "batch *n e"], spread: Float[Tensor, " e"]
    ) -> Float[Tensor, "batch *n e"]:
        return velocity / spread

    def check(self, x: Batch, name: str = "X") -> None:
        shape = shape_of(x, name)
        if len(shape) < 2 or shape[-1] != self.space_dim:
            raise ValueError(
                f"{name} has shape {shape}. Vectors of a space of {self.space_dim} dimensions are "
                f"expected, (N, {self.space_dim}) or (N, …, {self.space_dim})"
            )

    def __repr__(self) -> str:
        return f"DisplacementAction(space_dim={self.space_dim})"


class ImageAction(Action):
    """(g·x)(p) = x(g⁻¹p): images (batch, channels, height, width) of any size, warped bilinearly.

    Generators are 3 × 3 in homogeneous coordinates of the plane, last row zero. What enters from
    outside the image is zero.
    """

    def __init__(self) -> None:
        super().__init__(3, space_dim=2, rows=2)

    def act(
        self, elements: Elements, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch views channels height width"]:
        views = elements.views
        if not x.shape[0]:
            return x.unsqueeze(1).expand(-1, views, *x.shape[1:])
        elements = elements.in_precision_for(x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            if _by_kernels(elements, x):
                assert elements.bound is not None  # asked by _by_kernels
                return image_kernels.warp(elements.exponents().squeeze(2), x, elements.bound)
            # The grid is warped by the inverse, so that act(g, act(h, x)) = act(gh, x).
            inverse = elements.inverse().matrices().flatten(0, 1)
            pixels = x.to(inverse.dtype)
            channels, height, width = pixels.shape[1:]
            grid = affine_grid(
                _to_grid_sample(inverse, height, width),
                [inverse.shape[0], channels, height, width],
                align_corners=False,
            )
            repeated = pixels.unsqueeze(1).expand(-1, views, -1, -1, -1).flatten(0, 1)
            warped = grid_sample(repeated, grid, align_corners=False)
        return as_given(warped, x).view(x.shape[0], views, *x.shape[1:])

    def differential(
        self,
        generator: Float[Tensor, "d d"],
        x: Float[Tensor, "batch channels height width"],
    ) -> Float[Tensor, "batch channels height width"]:
        """-∇x · (A p + b), with central differences of the zero-padded image."""
        height, width = x.shape[-2:]
        unit = max(height, width) / 2
        generator, pixels = in_one_precision(generator, x)
        kind: dict[str, Any] = {"dtype": pixels.dtype, "device": x.device}
        columns = (torch.arange(width, **kind) - (width - 1) / 2) / unit
        rows = ((height - 1) / 2 - torch.arange(height, **kind)) / unit
        right = columns.expand(height, width)
        up = rows.unsqueeze(1).expand(height, width)
        flow = generator[:2] @ torch.stack([right, up, torch.ones_like(up)]).flatten(1)
        flow_right, flow_up = flow.view(2, height, width) * unit
        padded = pad(pixels, (1, 1, 1, 1))
        along_columns = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
        along_rows = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
        # Row numbers grow downwards, y grows upwards.
        return as_given(-(along_columns * flow_right - along_rows * flow_up), x)

    def check(self, x: Batch, name: str = "X") -> None:
        shape = shape_of(x, name)
        if len(shape) != 4:
            raise ValueError(
                f"{name} has shape {shape}. action='image' expects (N, C, H, W); for grey images "
                f"without a channel axis pass {name}[:, None]"
            )
        # Channels first would make this an image at most four pixels wide.
        if shape[3] <= 4 < shape[1]:
            features = shape[1] * shape[2] * shape[3]
            raise ValueError(
                f"{name} has shape {shape}. action='image' expects channels first (N, C, H, W). "
                f"Pass {name}.transpose(0, 3, 1, 2), or action='vector' to treat pixels as "
                f"features ({features} features → {features**2:,} generator entries)"
            )

    def __repr__(self) -> str:
        return "ImageAction()"


def _by_kernels(elements: Elements, x: Tensor) -> bool:
    """Whether elements are single exponentials and images plain data, as `image_kernels` needs."""
    return (
        x.is_cuda
        and kernels.available()
        and x.dtype == elements.basis.dtype == torch.float32
        and not x.requires_grad
        and len(x) > 0
        and elements.bound is not None
        and elements.is_exponential
    )


def _to_grid_sample(
    matrices: Float[Tensor, "n 3 3"], height: int, width: int
) -> Float[Tensor, "n 2 3"]:
    """Our frame (y up, longer half side = 1) to grid_sample's (y down, each half side = 1)."""
    return matrices[:, :2] * _change_of_frame(height, width, matrices.dtype, matrices.device)


@constant
def _change_of_frame(
    height: int, width: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "2 3"]:
    """Factors of the entries."""
    longer = max(height, width)
    frame = (width / longer, -height / longer, 1.0)
    factors = [[column / row for column in frame] for row in frame[:2]]
    return torch.tensor(factors, dtype=dtype, device=device)
