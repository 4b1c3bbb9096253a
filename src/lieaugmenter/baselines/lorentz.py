"""Augmentation by the whole Lorentz group: the law of its elements."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.lie.samplers import Sampler

# Each component of the rapidity, and where its law is cut, in deviations; as in the LLoCa code.
_DEVIATION = 0.1
_CUT = 3.0


class LorentzFrames(Sampler):
    """Rotations of all directions and angles alike, then a boost of normal rapidity.

    For elements of two factors with the generators of `lie.catalogue.so_pq(1, 3)`: boosts along
    x, y, z, then rotations of (x, y), (x, z), (y, z). The coefficients are (batch, views, 2, 6).

    Parameters
    ----------
    deviation
        Of each component of the rapidity, cut at three deviations.
    """

    # A factor for the boost and one for the rotation.
    factors = 2

    def __init__(self, deviation: float = _DEVIATION) -> None:
        super().__init__(deviation)

    @property
    def reach(self) -> float:
        return max(math.pi, _CUT * self.range)

    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        if shape[-2:] != (2, 6):
            raise ValueError(f"shape={shape}: Lorentz frames have 2 factors of 6 coefficients")
        empty = torch.empty(*shape[:-2], 7, dtype=self.grown.dtype, device=self.grown.device)
        rapidity, quaternion = empty.normal_(generator=generator).split([3, 4], dim=-1)
        rapidity = self.range * rapidity.clamp(-_CUT, _CUT)
        still = torch.zeros_like(rapidity)
        boost = torch.cat([rapidity, still], dim=-1)
        turn = torch.cat([still, _rotation(quaternion)], dim=-1)
        return torch.stack([boost, turn], dim=-2)


def _rotation(quaternion: Float[Tensor, "... 4"]) -> Float[Tensor, "... 3"]:
    """The rotation vector of a quaternion of any length, at most π long.

    Of normal quaternions the rotations are uniform. Signs and order of the axes do not matter to
    them.
    """
    real, imaginary = quaternion.split([1, 3], dim=-1)
    length = imaginary.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    angle = 2 * torch.atan2(length, real.abs())
    return imaginary * (angle / length)
