"""The GPU kernels of the image warp give the numbers of the torch code, gradients included."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from lieaugmenter.actions import ImageAction, image_kernels
from lieaugmenter.lie import kernels
from lieaugmenter.lie.elements import Elements

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="Triton is not installed"),
    pytest.mark.skipif(
        not CUDA and os.environ.get("TRITON_INTERPRET") != "1",
        reason="kernels need a GPU, or TRITON_INTERPRET=1 set before Triton is imported",
    ),
]


def smooth_images(n: int, channels: int, height: int, width: int) -> Tensor:
    """Random waves: the derivative of the interpolation jumps less than that of noise."""
    rng = torch.Generator().manual_seed(0)
    rows, columns = torch.arange(height) / height, torch.arange(width) / width
    phase = torch.rand(n, channels, 1, 1, generator=rng) * 6
    waves = torch.sin(4 * rows[:, None] + phase) * torch.cos(5 * columns[None, :] - phase)
    return waves.to(DEVICE)


def algebra_of(n: int, views: int, size: float) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    drawn = torch.randn(n, views, 2, 3, generator=rng)
    drawn = drawn / drawn.flatten(2).norm(dim=2)[..., None, None] * size
    return torch.nn.functional.pad(drawn, (0, 0, 0, 1)).to(DEVICE)


def by_torch(algebra: Tensor, x: Tensor) -> Tensor:
    """The torch code in double precision, each matrix as its own generator."""
    n, views = algebra.shape[:2]
    generators = algebra.double().flatten(0, 1)
    chosen = torch.eye(n * views, dtype=torch.float64, device=x.device)
    elements = Elements(chosen.view(n, views, n * views), generators)
    return ImageAction().act(elements, x.double())


SHAPES = [(1, 28, 28), (3, 17, 30), (2, 40, 12)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.01, 1.0, 4.2])
def test_kernels_warp_as_the_torch_code(shape: tuple[int, int, int], size: float) -> None:
    x, algebra = smooth_images(2, *shape), algebra_of(2, 3, size)
    moved = image_kernels.warp(algebra, x, size)
    assert moved.shape == (2, 3, *shape)
    torch.testing.assert_close(moved, by_torch(algebra, x).float(), atol=2e-4, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.01, 1.0, 4.2])
def test_gradients_of_the_kernels_are_those_of_autograd(
    shape: tuple[int, int, int], size: float
) -> None:
    x = smooth_images(2, *shape)
    weights = smooth_images(2 * 3, *shape).view(2, 3, *shape)
    gradients = []
    for function in (lambda a: image_kernels.warp(a, x, size), lambda a: by_torch(a, x)):
        algebra = algebra_of(2, 3, size).requires_grad_()
        moved = function(algebra)
        (moved * weights.to(moved.dtype)).sum().backward()
        assert algebra.grad is not None
        gradients.append(algebra.grad)
    scale = float(gradients[1].abs().max())
    # The last row stays zero, whatever its gradient.
    ours, theirs = gradients[0], gradients[1][:, :, :2]
    assert not ours[:, :, 2].any()
    torch.testing.assert_close(ours[:, :, :2], theirs, atol=2e-3 * scale, rtol=0)


def test_an_image_thrown_far_away_is_black() -> None:
    x = torch.ones(1, 1, 8, 8, device=DEVICE)
    far = torch.tensor([[[[0.0, 0.0, 1e12], [0.0] * 3, [0.0] * 3]]], device=DEVICE)
    assert not image_kernels.warp(far, x, 1.0).any()


@pytest.mark.skipif(not CUDA, reason="needs a GPU")
def test_the_action_takes_the_kernels_on_a_gpu_and_agrees_with_the_cpu() -> None:
    x = smooth_images(4, 1, 28, 28)
    basis = torch.tensor([[[0.1, -1.0, 0.0], [1.0, 0.0, 0.2], [0, 0, 0]]])
    coefficients = torch.linspace(-3, 3, 20).view(4, 5, 1)
    on_cpu = ImageAction().act(Elements(coefficients, basis, bound=5.0, rows=2), x.cpu())
    elements = Elements(coefficients.cuda(), basis.cuda(), bound=5.0, rows=2)
    torch.testing.assert_close(ImageAction().act(elements, x).cpu(), on_cpu, atol=1e-4, rtol=0)
