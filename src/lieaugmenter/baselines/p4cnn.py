"""The convolutional network of quarter turns and translations (p4, Cohen & Welling 2016).

A feature is a function on the group: a map for each of the four orientations. They are folded into
the channels, (channel, orientation) with the orientation last, so that a layer is one ordinary
convolution with a bank of rotated filters.

Convention: a quarter turn of the input, ``torch.rot90(x, 1, (-2, -1))``, turns every map likewise
and moves the map of orientation r to r + 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

HEADS = ("flatten", "pooled")
_TURNS = 4
# Odd: the middle of an even filter lies between pixels and moves when it is turned.
_SIZE = 3
_PLANE = (-2, -1)


def lifting_filters(weight: Float[Tensor, "n_out n_in k k"]) -> Float[Tensor, "4*n_out n_in k k"]:
    """Every filter in its four orientations."""
    turned = [torch.rot90(weight, turn, _PLANE) for turn in range(_TURNS)]
    return torch.stack(turned, dim=1).flatten(0, 1)


def p4_filters(weight: Float[Tensor, "n_out n_in 4 k k"]) -> Float[Tensor, "4*n_out 4*n_in k k"]:
    """Every filter on p4 in its four orientations.

    A turn also moves the filter's orientations: the output of orientation r looks at the input of
    orientation s with the filter of s - r.
    """
    turned = [torch.rot90(weight.roll(turn, 2), turn, _PLANE) for turn in range(_TURNS)]
    return torch.stack(turned, dim=1).flatten(0, 1).flatten(1, 2)


class LiftingConv(nn.Module):
    """From images to features on p4: a 3 × 3 convolution that keeps the size.

    Parameters
    ----------
    n_in, n_out
        Channels of the image, and of the feature (each of four maps).
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight, self.bias = _filters(n_out, n_in, _SIZE, _SIZE)

    def forward(
        self, x: Float[Tensor, "batch n_in height width"]
    ) -> Float[Tensor, "batch maps height width"]:
        return _convolve(x, lifting_filters(self.weight), self.bias)


class P4Conv(nn.Module):
    """From features on p4 to features on p4: a 3 × 3 convolution that keeps the size.

    Parameters
    ----------
    n_in, n_out
        Channels, of four maps each.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight, self.bias = _filters(n_out, n_in, _TURNS, _SIZE, _SIZE)

    def forward(
        self, x: Float[Tensor, "batch maps_in height width"]
    ) -> Float[Tensor, "batch maps height width"]:
        return _convolve(x, p4_filters(self.weight), self.bias)


class InvariantPool(nn.Module):
    """The largest value over orientations and pixels, as Cohen & Welling pool."""

    def forward(
        self, x: Float[Tensor, "batch maps height width"]
    ) -> Float[Tensor, "batch maps//4"]:
        return x.unflatten(1, (-1, _TURNS)).amax(dim=(2, 3, 4))


class P4CNN(nn.Module):
    """`CNN` with p4 convolutions: four of 3 × 3, two max-pools, two dense layers.

    Half of `CNN`'s channels give convolutions of as many parameters (64,752 and 64,992 on one
    channel), since a filter on p4 has four times the entries of a plain one. The features still
    number twice as many, and flattened they meet a dense layer of half the size: 466,874 parameters
    to `CNN`'s 467,818 for ten classes of 28 × 28 pixels. Pooled features are few and so are the
    parameters: 70,266.

    Parameters
    ----------
    in_shape
        (channels, height, width) of an image; both sides at least 4.
    n_outputs
        Number of classes, or of outputs.
    width
        Channels of the first two convolutions, of four maps each; the last two have twice as many.
    head
        ``"flatten"``: the dense layers see every map at every pixel, and the network is not
        invariant although its features are equivariant. The paper's p4 network must be of this
        kind: an invariant one would do as well on turned images as on upright ones.
        ``"pooled"``: they see the largest value over orientations and pixels, and quarter turns
        change nothing but the rounding. The max-pools commute with a turn where they leave no pixel
        over, so both sides must be divisible by 4.
    dense
        Width of the hidden dense layer. Default: 64 behind ``"flatten"``, and 128, `CNN`'s, behind
        ``"pooled"``.

    Examples
    --------
    >>> model, x = P4CNN((1, 28, 28), 10, head="pooled"), torch.randn(2, 1, 28, 28)
    >>> torch.allclose(model(x.rot90(1, (-2, -1))), model(x), atol=1e-5)
    True
    """

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        n_outputs: int,
        *,
        width: int = 16,
        head: str = "flatten",
        dense: int | None = None,
    ) -> None:
        super().__init__()
        channels, height, width_px = in_shape
        _check(height, width_px, head)
        self.features = nn.Sequential(
            *(LiftingConv(channels, width), nn.ReLU()),
            *(P4Conv(width, width), nn.ReLU()),
            nn.MaxPool2d(2),
            *(P4Conv(width, 2 * width), nn.ReLU()),
            *(P4Conv(2 * width, 2 * width), nn.ReLU()),
            nn.MaxPool2d(2),
        )
        if head == "pooled":
            dense, n_features = dense or 128, 2 * width
            flat: nn.Module = InvariantPool()
        else:
            dense, n_features = dense or 64, 2 * width * _TURNS * (height // 4) * (width_px // 4)
            flat = nn.Flatten()
        self.head = nn.Sequential(
            flat, nn.Linear(n_features, dense), nn.ReLU(), nn.Linear(dense, n_outputs)
        )

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch outputs"]:
        return self.head(self.features(x))


def _check(height: int, width: int, head: str) -> None:
    if head not in HEADS:
        raise ValueError(f"unknown head {head!r}; choose from {', '.join(HEADS)}")
    if min(height, width) < 4:
        raise ValueError(f"images of {height} × {width} pixels are too small: at least 4 × 4")
    if head == "pooled" and (height % 4 or width % 4):
        raise ValueError(
            f"head='pooled' would not be invariant for images of {height} × {width} pixels: "
            f"pad them to sides that are divisible by 4"
        )


def _filters(n_out: int, *shape: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights (n_out, *shape) and biases, one for all orientations, drawn as nn.Conv2d does."""
    bound = torch.Size(shape).numel() ** -0.5
    weight = torch.empty(n_out, *shape).uniform_(-bound, bound)
    return nn.Parameter(weight), nn.Parameter(torch.empty(n_out).uniform_(-bound, bound))


def _convolve(x: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    biases = bias[:, None].expand(-1, _TURNS).flatten()
    return functional.conv2d(x, filters, biases, padding=_SIZE // 2)
