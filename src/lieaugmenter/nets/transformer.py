"""A transformer on the particles of a scattering event."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

# A component that hardly varies is not blown up by more than its inverse.
_LEAST_DEVIATION = 1e-2
# Between the two dense layers of a block there are this many times as many numbers.
_WIDENING = 2


class ParticleTransformer(nn.Module):
    """A token for each particle and a global one, blocks of attention, a map of the global token.

    The baseline of the reference setting (Spinner et al. 2024), with 1.06 million parameters:
    normalisation before attention and dense layers, without parameters of its own; no positions,
    because what a particle is says its kind; no dropout. Under bf16 the embedding, the sum that
    blocks add to, and the output stay float32: small differences of large momenta matter.

    Parameters
    ----------
    kinds
        A number from 0 on for each particle, equal for particles that are alike.
    n_outputs
        Numbers to predict.
    channels
        Numbers per token.
    blocks
        Number of blocks.
    heads
        Number of attention heads; divides `channels`.
    momenta
        Momenta by whose mean and deviation each component is standardised: the network's first
        layer, so that elements act before it. They are taken as they are unless given.

    Examples
    --------
    >>> network = ParticleTransformer((0, 0, 1, 2, 2))
    >>> network(torch.zeros(3, 5, 4)).shape
    torch.Size([3, 1])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        kinds: Sequence[int],
        n_outputs: int = 1,
        *,
        channels: int = 128,
        blocks: int = 8,
        heads: int = 8,
        momenta: Float[Tensor, "events particles 4"] | None = None,
    ) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"heads={heads} does not divide channels={channels}")
        if min(kinds) < 0:
            raise ValueError(f"kinds={tuple(kinds)}: give a number from 0 on for each particle")
        mean, deviation = torch.zeros(4), torch.ones(4)
        if momenta is not None:
            flat = momenta.detach().reshape(-1, 4).double()
            mean, deviation = flat.mean(0).float(), flat.std(0).clamp_min(_LEAST_DEVIATION).float()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.register_buffer("kinds", torch.tensor(kinds), persistent=False)
        self.momenta = nn.Linear(4, channels)
        self.kind = nn.Embedding(max(kinds) + 1, channels)
        self.query = nn.Parameter(torch.randn(channels))
        self.blocks = nn.Sequential(*(_Block(channels, heads) for _ in range(blocks)))
        self.output = nn.Linear(channels, n_outputs)

    def forward(self, x: Float[Tensor, "batch particles 4"]) -> Float[Tensor, "batch outputs"]:
        with torch.autocast(x.device.type, enabled=False):
            standard = (x.to(self.mean.dtype) - self.mean) / self.deviation
            particles = self.momenta(standard) + self.kind(self.kinds)
            asking = self.query.expand(len(x), 1, -1)
            tokens = torch.cat([asking, particles], dim=1)
        tokens = self.blocks(tokens)
        with torch.autocast(x.device.type, enabled=False):
            return self.output(tokens[:, 0].to(self.mean.dtype))


class _Block(nn.Module):
    """Attention, then a dense layer for each token; both add to what comes in."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mixing = nn.Linear(channels, 3 * channels)
        self.mixed = nn.Linear(channels, channels)
        self.dense = nn.Sequential(
            nn.Linear(channels, _WIDENING * channels),
            nn.GELU(),
            nn.Linear(_WIDENING * channels, channels),
        )

    def forward(self, x: Float[Tensor, "batch tokens channels"]) -> Tensor:
        x = x + self.mixed(self._attend(self.mixing(_normal(x))))
        return x + self.dense(_normal(x))

    def _attend(self, mixing: Float[Tensor, "batch tokens triple"]) -> Tensor:
        """Every token looks at all; written out, because fused attention has no forward derivative.

        For so few tokens the fused one would also leave most of its tiles empty.
        """
        split = mixing.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1).to(value.dtype)
        return (weights @ value).transpose(1, 2).flatten(2)


def _normal(x: Tensor) -> Tensor:
    return nn.functional.layer_norm(x, x.shape[-1:])
