"""Predictors. Those named here know nothing of any symmetry; `equivariant` has those that do."""

from typing import TYPE_CHECKING, Any

from lieaugmenter.nets.cnn import CNN as CNN
from lieaugmenter.nets.lieconv import LieConv as LieConv
from lieaugmenter.nets.mlp import MLP as MLP
from lieaugmenter.nets.mlp import ProductMLP as ProductMLP
from lieaugmenter.nets.mlp import Standardized as Standardized
from lieaugmenter.nets.process import GaussianProcess as GaussianProcess
from lieaugmenter.nets.transformer import ParticleTransformer as ParticleTransformer

if TYPE_CHECKING:
    from lieaugmenter.nets.efficientnet import EfficientNet as EfficientNet
    from lieaugmenter.nets.vit import VisionTransformer as VisionTransformer

# Loaded on first use: they need transformers, which the core does not.
_VISION = ("EfficientNet", "VisionTransformer")


def __getattr__(name: str) -> Any:
    if name == "EfficientNet":
        from lieaugmenter.nets.efficientnet import EfficientNet

        return EfficientNet
    if name == "VisionTransformer":
        from lieaugmenter.nets.vit import VisionTransformer

        return VisionTransformer
    raise AttributeError(f"module 'lieaugmenter.nets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_VISION])
