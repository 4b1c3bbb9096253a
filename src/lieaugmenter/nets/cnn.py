"""The paper's small convolutional network."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class CNN(nn.Module):
    """Four 3 × 3 convolutions with two max-pools between them, then two dense layers.

    The paper names the layers and not their widths; these (32, 32, 64, 64, dense 128) match its
    accuracies without augmentation. No batch norm: it would mix the statistics of original and
    transformed images.

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
        return self.head(self.features(x))
