"""The paper's small convolutional network."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, pad

from lieaugmenter.lie import kernels
from lieaugmenter.nets import cnn_kernels

# Images of up to this many channels have their first convolution in a kernel of our own; others
# are padded to the number of channels that tensor cores want.
_STEM_CHANNELS = 3
_TENSOR_CORE_CHANNELS = 8


# What the kernels stand for, layer by layer.
_LAYERS = (
    nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.MaxPool2d,
    nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Flatten,
    nn.Linear, nn.ReLU, nn.Linear,
)  # fmt: skip


class CNN(nn.Module):
    """Four 3 × 3 convolutions with two max-pools between them, then two dense layers.

    The paper names the layers and not their widths; these (32, 32, 64, 64, dense 128) match its
    accuracies without augmentation. No batch norm: it would mix the statistics of original and
    transformed images.

    On a GPU under autocast to bfloat16 the layers run through `cnn_kernels`: the same numbers up to
    rounding, but differentiable only once.

    Parameters
    ----------
    in_shape
        (channels, height, width) of an image; both sides at least 4.
    n_outputs
        Number of classes, or of outputs.
    width
        Channels of the first two convolutions; the last two have twice as many.

    Examples
    --------
    >>> import torch
    >>> CNN((1, 28, 28), 10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, in_shape: tuple[int, int, int], n_outputs: int, *, width: int = 32) -> None:
        super().__init__()
        channels, height, width_px = in_shape
        if min(height, width_px) < 4:
            raise ValueError(
                f"images of {height} × {width_px} pixels are too small: at least 4 × 4"
            )

        def convolution(before: int, after: int) -> list[nn.Module]:
            return [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]

        self.features = nn.Sequential(
            *convolution(channels, width),
            *convolution(width, width),
            nn.MaxPool2d(2),
            *convolution(width, 2 * width),
            *convolution(2 * width, 2 * width),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        flat = 2 * width * (height // 4) * (width_px // 4)
        self.head = nn.Sequential(nn.Linear(flat, 128), nn.ReLU(), nn.Linear(128, n_outputs))

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch outputs"]:
        if self._takes_kernels(x):
            return self._forward_by_kernels(x)
        return self.head(self.features(x))

    def _takes_kernels(self, x: Tensor) -> bool:
        """Whether this is a plain call on a GPU under autocast to bfloat16."""
        return (
            x.is_cuda
            and kernels.available()
            and torch.is_autocast_enabled("cuda")
            and torch.get_autocast_dtype("cuda") == torch.bfloat16
            and not torch.compiler.is_compiling()
            and not kernels.transforming()
            and self._fits_kernels(x)
        )

    def _fits_kernels(self, x: Tensor) -> bool:
        """Whether images and layers are what the kernels expect; they check nothing themselves."""
        if tuple(map(type, (*self.features, *self.head))) != _LAYERS:
            return False
        (weight, _), *_ = self._weights()
        return (
            x.ndim == 4
            and x.shape[1] == weight.shape[1]
            and x.numel() > 0
            and all(p.dtype == torch.float32 and p.device == x.device for p in self.parameters())
            and cnn_kernels.fits(x.numel() // x.shape[1], x.shape[1], len(weight))
            and not _has_hooks(self)
        )

    def _weights(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of the four convolutions and the two dense layers."""
        layers = [*self.features, *self.head]
        return [(layer.weight, layer.bias) for layer in layers if hasattr(layer, "weight")]  # pyright: ignore[reportReturnType]  # a module's attributes have no types

    def _forward_by_kernels(self, x: Tensor) -> Tensor:
        """The same network in bfloat16, with one kernel for what follows each convolution."""
        first, *convolutions, hidden, last = self._weights()
        (second, bias2), (third, bias3), (fourth, bias4) = convolutions
        second, third, fourth, *head = cnn_kernels.shorten(
            torch.bfloat16, second, third, fourth, *hidden, *last
        )
        y = _first_layer(x, *first)
        y = cnn_kernels.bias_relu_pool(conv2d(y, second, padding=1), bias2)
        y = cnn_kernels.bias_relu(conv2d(y, third, padding=1), bias3)
        y = cnn_kernels.bias_relu_pool(conv2d(y, fourth, padding=1), bias4, planar=True)
        return linear(linear(y.flatten(1), *head[:2]).relu(), *head[2:])


def _first_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolution, bias and ReLU of images, which have fewer channels than tensor cores want."""
    channels = x.shape[1]
    if channels <= _STEM_CHANNELS:
        return cnn_kernels.stem(x, weight, bias)
    missing = (0, 0, 0, 0, 0, max(0, _TENSOR_CORE_CHANNELS - channels))
    padded, taps = (pad(tensor.to(torch.bfloat16), missing) for tensor in (x, weight))
    padded = padded.contiguous(memory_format=torch.channels_last)
    return cnn_kernels.bias_relu(conv2d(padded, taps, padding=1), bias)


def _has_hooks(module: nn.Module) -> bool:
    """Whether someone looks into the layers, which the kernels would pass by."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
        for part in module.modules()
        if part is not module
    )
