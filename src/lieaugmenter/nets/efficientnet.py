"""EfficientNet-B0 with random weights, over the transformers library."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

try:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification
except ImportError as error:
    raise ImportError("EfficientNet needs: pip install 'lieaugmenter[vision]'") from error

NORMS = ("batch", "group")
# Divides every width of B0. A fixed number of channels, not of groups: the last maps of small
# images are single pixels, and a group of one number would be normalised to nothing.
_GROUP = 8
# The published decay 0.99 of the running statistics, as torch counts.
_MOMENTUM = 0.01


class EfficientNet(nn.Module):
    """EfficientNet-B0 (Tan & Le 2019) for images of any size from 32 × 32 pixels.

    Four million parameters and a linear layer: 5,288,548 for three channels and 1,000 classes. The
    weights are random, those of the convolutions drawn as published, and nothing is downloaded. The
    published dropout and stochastic depth are left out: augmentation is what is under study.

    Parameters
    ----------
    in_shape
        (channels, height, width) of an image; both sides at least 32.
    n_outputs
        Number of classes, or of outputs.
    norm
        ``"batch"``: batch norm, as published. It mixes the statistics of original and transformed
        images in training, of which `lieaugmenter.fit` warns. ``"group"``: group norm over groups
        of 8 channels, which sees each image by itself, with as many parameters.

    Examples
    --------
    >>> import torch
    >>> EfficientNet((3, 64, 64), 9, norm="group")(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 9])
    """

    def __init__(
        self, in_shape: tuple[int, int, int], n_outputs: int, *, norm: str = "batch"
    ) -> None:
        super().__init__()
        channels, height, width = in_shape
        if norm not in NORMS:
            raise ValueError(f"unknown norm {norm!r}; choose from {', '.join(NORMS)}")
        if min(height, width) < 32:
            raise ValueError(f"images of {height} × {width} pixels are too small: at least 32 × 32")
        settings: dict[str, Any] = {
            "image_size": (height, width),
            "num_channels": channels,
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
            "dropout_rate": 0.0,
            "drop_connect_rate": 0.0,
            "num_labels": n_outputs,
        }
        self.body = EfficientNetForImageClassification(EfficientNetConfig(**settings))
        _draw_weights(self.body)
        _set_norms(self.body, norm)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch outputs"]:
        return self.body(pixel_values=x).logits


class _GroupNorm(nn.GroupNorm):
    """Group norm in the precision of its input, with statistics in float32.

    Autocast would turn its output, and all that follows, into float32: twice the bytes.
    """

    def forward(self, input: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        with torch.autocast("cuda" if input.is_cuda else "cpu", enabled=False):
            weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
            return nn.functional.group_norm(input, self.num_groups, weight, bias, self.eps)


def _draw_weights(body: nn.Module) -> None:
    """Draw convolutions as published, and begin with norms that scale by one.

    The library expects weights to be loaded: it draws all of them with a deviation of 0.02, the
    scales of the norms too, and the outputs of its first network are zero to thirty digits.
    """
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.weight[0, 0].numel() * module.out_channels // module.groups
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)


def _set_norms(module: nn.Module, norm: str) -> None:
    """Replace every batch norm, or give it the published decay: the library has it inverted."""
    for name, child in module.named_children():
        if not isinstance(child, nn.BatchNorm2d):
            _set_norms(child, norm)
        elif norm == "group":
            groups = child.num_features // _GROUP
            setattr(module, name, _GroupNorm(groups, child.num_features, eps=child.eps))
        else:
            child.momentum = _MOMENTUM
