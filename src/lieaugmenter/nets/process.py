"""A Gaussian process: the predictor for few and noisy samples, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

# A kernel, of products of two inputs and of their squared distances.
_Kernel = Callable[[Tensor, Tensor], Tensor]
_WIDTHS = (0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 16.0)
_TAILS = (0.3, 1.0, 3.0, 10.0)
_DEGREES = (1, 2, 3, 4)
_OFFSETS = (0.1, 0.3, 1.0, 3.0)
# Variances of the noise, as shares of the kernel's.
_NOISE = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


def _gaussian(width: float, products: Tensor, squares: Tensor) -> Tensor:
    return (-squares / (2 * width)).exp()


def _rational(width: float, products: Tensor, squares: Tensor) -> Tensor:
    return 1 / (1 + squares / (2 * width))


def _polynomial(degree: int, offset: float, products: Tensor, squares: Tensor) -> Tensor:
    return (offset + products) ** degree


_KERNELS: tuple[_Kernel, ...] = (
    *(partial(_gaussian, width) for width in _WIDTHS),
    *(partial(_rational, width) for width in _TAILS),
    *(partial(_polynomial, degree, offset) for degree in _DEGREES for offset in _OFFSETS),
)


class GaussianProcess(nn.Module):
    """The mean of a Gaussian process, given samples; nothing in it is trained.

    Kernel (Gaussian, rational quadratic, or a polynomial up to the fourth degree) and noise are
    those under which the targets are likeliest. All numbers of a target share them.

    Parameters
    ----------
    x
        Inputs, (n, …): taken as one vector each, in one unit. Up to about a thousand: the time
        grows with n³.
    y
        Targets, (n, …); labels are taken as one number for each class, 1 for the right one.
    classes
        Number of classes if targets are labels, 0 otherwise.

    Examples
    --------
    >>> x = torch.linspace(-2, 2, 20)[:, None]
    >>> process = GaussianProcess(x, x.sin())
    >>> bool((process(x) - x.sin()).abs().max() < 1e-2)
    True
    """

    def __init__(self, x: Float[Tensor, "n ..."], y: Tensor, classes: int = 0) -> None:
        super().__init__()
        targets = nn.functional.one_hot(y, classes) if classes else y
        self.out_shape = tuple(targets.shape[1:])
        targets = targets.reshape(len(y), -1).double()
        self.inputs = nn.Buffer(x.reshape(len(x), -1).double())
        self.mean = nn.Buffer(targets.mean(0))
        # Inputs that are all alike have no unit.
        self.unit = float(torch.cdist(self.inputs, self.inputs).square().median()) or 1.0
        self.kernel, weights = self._likeliest(targets - self.mean)
        self.weights = nn.Buffer(weights)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        kernel = self.kernel(*self._compared(x.reshape(len(x), -1).double()))
        return (kernel @ self.weights + self.mean).to(x.dtype).reshape(len(x), *self.out_shape)

    def _compared(self, x: Float[Tensor, "batch d"]) -> tuple[Tensor, Tensor]:
        """Products with the given inputs and squared distances from them, in typical units."""
        products = x @ self.inputs.T
        lengths = x.square().sum(1)[:, None] + self.inputs.square().sum(1)
        squares = (lengths - 2 * products).clamp_min(0)
        return 2 * products / self.unit, squares / self.unit

    def _likeliest(self, targets: Float[Tensor, "n k"]) -> tuple[_Kernel, Float[Tensor, "n k"]]:
        """The kernel of the greatest marginal likelihood, and the weights of the inputs."""
        compared = self._compared(self.inputs)
        best = -torch.inf
        chosen, weights = _KERNELS[0], torch.zeros_like(targets)
        for kernel in _KERNELS:
            matrix = kernel(*compared)
            size = matrix.diagonal().mean()
            if not size > 0:  # a linear one, where all inputs are zero
                continue
            variances, axes = torch.linalg.eigh(matrix / size)
            along = axes.T @ targets
            for noise in _NOISE:
                total = variances.clamp_min(0) + noise
                # The scale of all variances is the likeliest one, by formula.
                scale = (along.square() / total[:, None]).mean().clamp_min(1e-30)
                spread = len(targets) * scale.log() + total.log().sum()
                likelihood = -float(targets.shape[1] * spread)
                if likelihood > best:
                    best, chosen = likelihood, kernel
                    weights = axes @ (along / total[:, None]) / size
        return chosen, weights
