"""A Vision Transformer with random weights, over the transformers library."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

try:
    from transformers import AttentionInterface, ViTConfig, ViTForImageClassification
except ImportError as error:
    raise ImportError("the Vision Transformer needs: pip install 'lieaugmenter[vision]'") from error

_PLAIN = "lieaugmenter-plain"


def _attention(
    module: nn.Module,
    query: Float[Tensor, "batch heads tokens size"],
    key: Float[Tensor, "batch heads tokens size"],
    value: Float[Tensor, "batch heads tokens size"],
    attention_mask: None,
    *,
    scaling: float,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Every token looks at all tokens.

    Fused attention has no forward-mode derivative, which the Lie derivative needs. The library's
    written-out one makes a mask with a copy from the CPU, which a CUDA graph cannot record.
    """
    weights = (query @ key.mT * scaling).softmax(-1)
    return (weights.to(value.dtype) @ value).transpose(1, 2), weights


AttentionInterface.register(_PLAIN, _attention)


class VisionTransformer(nn.Module):
    """Patches as tokens, layers of attention, a linear map of the class token (Dosovitskiy et al.).

    The defaults are a small one for 64 × 64 pixels: 64 patches, 2.7 million parameters. The weights
    are random and nothing is downloaded. It normalises each token by itself and has no dropout, so
    original and transformed images do not mix.

    Parameters
    ----------
    in_shape
        (channels, height, width) of an image.
    n_outputs
        Number of classes, or of outputs.
    patch
        Side of a patch in pixels; divides both sides of an image.
    hidden
        Numbers per token; between the two dense layers of a block there are four times as many.
    layers
        Number of blocks.
    heads
        Number of attention heads; divides `hidden`.

    Examples
    --------
    >>> import torch
    >>> VisionTransformer((3, 64, 64), 9)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 9])
    """

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        n_outputs: int,
        *,
        patch: int = 8,
        hidden: int = 192,
        layers: int = 6,
        heads: int = 3,
    ) -> None:
        super().__init__()
        channels, height, width = in_shape
        # Otherwise the library leaves out the pixels, or the features, that are over.
        if height % patch or width % patch:
            raise ValueError(f"patch={patch} does not divide images of {height} × {width} pixels")
        if hidden % heads:
            raise ValueError(f"heads={heads} does not divide hidden={hidden}")
        settings: dict[str, Any] = {
            "image_size": (height, width),
            "patch_size": patch,
            "num_channels": channels,
            "hidden_size": hidden,
            "intermediate_size": 4 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "num_labels": n_outputs,
            "attn_implementation": _PLAIN,
        }
        self.body = ViTForImageClassification(ViTConfig(**settings))

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch outputs"]:
        return self.body(pixel_values=x).logits
