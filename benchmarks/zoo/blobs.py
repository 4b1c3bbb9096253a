"""Images of Gaussian blobs, whose symmetries can be computed exactly.

A blob is a centre, a covariance and a fixed brightness. An affine map moves centre and covariance,
and the blob's image is then the moved image exactly, in the continuum: the family is closed under
all six generators of the plane. So the symmetry of a target given in terms of centres and
covariances is a matter of derivatives in these few numbers; pixels only sample the field.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.zoo.functions import Sampler

SIDE = 12
# Different, so that an image tells which blob is which.
BRIGHTNESS = (1.0, -0.7)
# Of a blob's numbers: centre x, y, covariance xx, xy, yy.
NUMBERS = 5


def blobs(reach: float = 0.28, centre: tuple[float, float] = (0.0, 0.0)) -> Sampler:
    """Two elongated blobs inside the frame [-1, 1]², as (n, 2, 5)."""

    def draw(n: int, rng: torch.Generator) -> Tensor:
        count = len(BRIGHTNESS)
        spread = torch.randn((n, count, 2), generator=rng, dtype=torch.float64)
        # Cut, because a blob that leaves the frame is seen no more.
        middle = torch.tensor(centre, dtype=torch.float64) + reach * spread.clamp(-2.0, 2.0)
        root = 0.03 * torch.randn((n, count, 2, 2), generator=rng, dtype=torch.float64)
        root = root + 0.22 * torch.eye(2, dtype=torch.float64)
        covariance = root @ root.mT
        upper = torch.stack(
            [covariance[..., 0, 0], covariance[..., 0, 1], covariance[..., 1, 1]], dim=-1
        )
        return torch.cat([middle, upper], dim=-1)

    return draw


def parts(z: Tensor) -> tuple[Tensor, Tensor]:
    """Centres (…, 2) and covariances (…, 2, 2)."""
    xx, xy, yy = z[..., 2], z[..., 3], z[..., 4]
    return z[..., :2], torch.stack([xx, xy, xy, yy], dim=-1).unflatten(-1, (2, 2))


def flow(generator: Tensor, z: Tensor) -> Tensor:
    """How fast a generator (3, 3) of the plane moves centres and covariances."""
    linear, shift = generator[:2, :2].to(z), generator[:2, 2].to(z)
    centre, covariance = parts(z)
    change = linear @ covariance + covariance @ linear.mT
    upper = torch.stack([change[..., 0, 0], change[..., 0, 1], change[..., 1, 1]], dim=-1)
    return torch.cat([centre @ linear.mT + shift, upper], dim=-1)


def field(z: Tensor, at: Tensor) -> Tensor:
    """Brightness at points of the plane: (n, 2, 5) and (m, 2) to (n, m)."""
    centre, covariance = parts(z)
    away = at - centre.unsqueeze(-2)
    weighted = torch.linalg.solve(covariance, away.mT).mT
    heights = (-0.5 * (away * weighted).sum(-1)).exp()
    return (heights * z.new_tensor(BRIGHTNESS)[:, None]).sum(-2)


def pixels(dtype: torch.dtype = torch.float64) -> Tensor:
    """Pixel centres in the frame of image actions, row by row from the top: x right, y up."""
    steps = (torch.arange(SIDE, dtype=dtype) - (SIDE - 1) / 2) / (SIDE / 2)
    up, right = torch.meshgrid(-steps, steps, indexing="ij")
    return torch.stack([right, up], dim=-1).flatten(0, 1)


def render(z: Tensor) -> Tensor:
    """Images (n, 1, 12, 12)."""
    return field(z, pixels(z.dtype)).unflatten(-1, (1, SIDE, SIDE))
