"""L-GATr (Spinner et al. 2024): a transformer that is equivariant under the Lorentz group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    from lgatr import LGATr, embed_vector
except ImportError as error:
    raise ImportError("the L-GATr baseline needs: pip install 'lieaugmenter[lgatr]'") from error


class LorentzTransformer(nn.Module):
    """The lgatr library's network with a token for each particle and a global one.

    Momenta are multivectors, kinds of particles are scalars, and what is predicted is the scalar
    part of the global token: it is invariant under proper orthochronous Lorentz transformations to
    rounding. The defaults are the published ones for amplitudes.

    Parameters
    ----------
    kinds
        A number from 0 on for each particle, equal for particles that are alike.
    n_outputs
        Numbers to predict.
    channels
        Multivectors per token, and as many scalars.
    blocks
        Number of blocks.
    heads
        Number of attention heads.

    Examples
    --------
    >>> network = LorentzTransformer((0, 0, 1, 2, 2), channels=8, blocks=1)
    >>> network(torch.zeros(3, 5, 4)).shape
    torch.Size([3, 1])
    """

    kinds: Tensor

    def __init__(
        self,
        kinds: Sequence[int],
        n_outputs: int = 1,
        *,
        channels: int = 32,
        blocks: int = 8,
        heads: int = 8,
    ) -> None:
        super().__init__()
        # The global token comes first and is of a kind of its own.
        numbered = torch.tensor([max(kinds) + 1, *kinds])
        kind = nn.functional.one_hot(numbered).float()
        self.register_buffer("kinds", kind, persistent=False)
        self.body = LGATr(
            num_blocks=blocks,
            in_mv_channels=1,
            out_mv_channels=n_outputs,
            hidden_mv_channels=channels,
            in_s_channels=kind.shape[1],
            out_s_channels=0,
            hidden_s_channels=channels,
            attention={"num_heads": heads, "attn_ratio": 2},
            mlp={"mlp_ratio": 2, "nonlinearity": "gelu"},
            # Uncompiled, the library's sparse product adds up its gradient by atomic operations.
            primitives={"sparse_gp": False},
        )

    def forward(self, x: Float[Tensor, "batch particles 4"]) -> Float[Tensor, "batch outputs"]:
        tokens = nn.functional.pad(x, (0, 0, 1, 0))
        multivectors = embed_vector(tokens).unsqueeze(2)
        # Of so few tokens the fused kernels would leave most of their tiles empty.
        with sdpa_kernel(SDPBackend.MATH):
            found, _ = self.body(multivectors, self.kinds.expand(len(x), -1, -1))
        return found[:, 0, :, 0].float()
