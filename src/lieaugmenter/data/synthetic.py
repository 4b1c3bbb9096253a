"""Regression tasks given by a formula: two with a discrete symmetry, one with none.

In all of them the parts are drawn from streams of their own: a smaller training set comes with the
same test set. Nothing is normalised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lieaugmenter.data.task import Task
from lieaugmenter.lie.catalogue import lift, so

Reading = Literal["variance", "deviation"]

_MEAN = np.array([0.2, -0.1, 0.3, -0.2, 0.15])
_VARIANCES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
_WIDTHS = (5, 64, 64, 1)
_SIGMA = 0.01
_WEIGHT_DEVIATIONS: dict[str, float] = {"variance": math.sqrt(_SIGMA), "deviation": _SIGMA}


def discrete_rotation(
    n_train: int = 54_000,
    n_validation: int = 6_000,
    n_test: int = 10_000,
    *,
    k: int = 6,
    seed: int = 0,
) -> Task:
    """A function of R³ that rotations about the third axis leave alone, by multiples of 2π/k.

    Inputs are standard normal; see `discrete_rotation_target` for the function. The generator is
    that of all rotations about the third axis, the smallest connected group with those k in it.

    Parameters
    ----------
    n_train, n_validation, n_test
        Numbers of samples.
    k
        Size of the cyclic group.
    seed
        Of the inputs.

    Examples
    --------
    >>> task = discrete_rotation(100, 10, 20)
    >>> task.x_train.shape, task.y_test.shape
    (torch.Size([100, 3]), torch.Size([20, 1]))
    >>> task.generator
    tensor([[[ 0., -1.,  0.],
             [ 1.,  0.,  0.],
             [ 0.,  0.,  0.]]])
    """

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((n, 3))
        return x, discrete_rotation_target(x, k)

    return Task(
        name="discrete-rotation",
        **_parts(draw, (n_train, n_validation, n_test), np.random.default_rng(seed)),
        generator=lift(so(2)),
        output="invariant",
        feature_names=("x", "y", "z"),
    )


def discrete_rotation_target(x: np.ndarray, k: int = 6) -> np.ndarray:
    """The function z / (1 + (θ mod 2π/k)), with θ the angle of (x, y).

    θ is atan2(y, x), which is what the paper's arctan(y / x) must mean for odd k; for even k the
    two agree after the remainder. The function jumps at the borders of the k sectors. Its one
    exact continuous linear symmetry is not the rotation but the scaling diag(1, 1, 0).

    >>> discrete_rotation_target(np.array([[1.0, 0.0, 2.0], [-3.0, 0.0, 2.0]]))
    array([2., 2.])
    """
    angle = np.arctan2(x[..., 1], x[..., 0])
    return x[..., 2] / (1 + np.mod(angle, 2 * math.pi / k))


def partial_permutation(
    n_train: int = 54_000, n_validation: int = 6_000, n_test: int = 10_000, *, seed: int = 0
) -> Task:
    """A function of R⁵ that permutations of the first three coordinates leave alone.

    Inputs are uniform on [-100, 100]⁵; see `partial_permutation_target` for the function. The
    generator is the rotation about (1, 1, 1) of the first three coordinates: its turn by 2π/3 is
    the cyclic permutation. It is an exact symmetry for every angle, and not the only one: the
    linear symmetries of the function have dimension 11.

    Parameters
    ----------
    n_train, n_validation, n_test
        Numbers of samples.
    seed
        Of the inputs.

    Examples
    --------
    >>> task = partial_permutation(100, 10, 20)
    >>> x1, x2, x3, x4, x5 = task.x_test.T
    >>> torch.allclose(task.y_test[:, 0], x1 + x2 + x3 + x4**2 - x5**2, atol=1e-2)
    True
    """

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.uniform(-100.0, 100.0, (n, 5))
        return x, partial_permutation_target(x)

    axis_turn = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
    return Task(
        name="partial-permutation",
        **_parts(draw, (n_train, n_validation, n_test), np.random.default_rng(seed)),
        generator=torch.nn.functional.pad(axis_turn, (0, 2, 0, 2)).unsqueeze(0),
        output="invariant",
        feature_names=_numbered(5),
    )


def partial_permutation_target(x: np.ndarray) -> np.ndarray:
    """The function x1 + x2 + x3 + x4² - x5².

    >>> partial_permutation_target(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).item()
    -3.0
    """
    return x[..., :3].sum(-1) + x[..., 3] ** 2 - x[..., 4] ** 2


def no_symmetry(
    n_train: int = 50_000,
    n_validation: int = 10_000,
    n_test: int = 10_000,
    *,
    reading: Reading = "variance",
    noise: float = 0.01,
    seed: int = 0,
) -> Task:
    """A random network of R⁵ with no continuous symmetry, plus noise.

    y = f*(x) + ε with x ~ N(μ, Σ), μ = (0.2, -0.1, 0.3, -0.2, 0.15), Σ = diag(1, 2, 4, 8, 16), and
    f* a network of two hidden layers of width 64 with tanh. Weights and biases are independent
    draws of one normal law (the paper is silent about biases; without them f* would be odd).

    Parameters
    ----------
    n_train, n_validation, n_test
        Numbers of samples.
    reading
        Of the weights' law, which the paper writes as N(0, σ) with σ = 0.01. As ``"variance"``,
        their standard deviation is 0.1, and f* varies some twenty times more than the noise. As
        ``"deviation"``, f* varies some thirty times less than the noise and is all but linear
        (R² above 0.9999): it has linear symmetries, and nothing could be learned.
    noise
        Standard deviation of ε.
    seed
        Of the network, the inputs and the noise.

    Examples
    --------
    >>> task = no_symmetry(100, 10, 20)
    >>> task.x_train.shape, task.y_train.shape, task.generator
    (torch.Size([100, 5]), torch.Size([100, 1]), None)
    """
    if reading not in _WEIGHT_DEVIATIONS:
        known = ", ".join(sorted(_WEIGHT_DEVIATIONS))
        raise ValueError(f"unknown reading {reading!r}; choose from {known}")
    rng = np.random.default_rng(seed)
    network = _frozen_network(rng, _WEIGHT_DEVIATIONS[reading])

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = _MEAN + np.sqrt(_VARIANCES) * rng.standard_normal((n, 5))
        return x, network(x) + noise * rng.standard_normal(n)

    return Task(
        name="no-symmetry",
        **_parts(draw, (n_train, n_validation, n_test), rng),
        generator=None,
        output="invariant",
        feature_names=_numbered(5),
    )


def _frozen_network(
    rng: np.random.Generator, deviation: float
) -> Callable[[np.ndarray], np.ndarray]:
    """f*, with the bias of a layer as the last row of its weights."""
    layers = [
        deviation * rng.standard_normal((before + 1, after)) for before, after in pairwise(_WIDTHS)
    ]

    def network(x: np.ndarray) -> np.ndarray:
        for layer in layers[:-1]:
            x = np.tanh(x @ layer[:-1] + layer[-1])
        return (x @ layers[-1][:-1] + layers[-1][-1])[:, 0]

    return network


def _parts(
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]],
    sizes: tuple[int, int, int],
    rng: np.random.Generator,
) -> dict[str, Tensor]:
    """The inputs and targets of a `Task`, by the names of its fields."""
    names = ("train", "validation", "test")
    parts = {}
    for part, size, stream in zip(names, sizes, rng.spawn(3), strict=True):
        if size < 1:
            raise ValueError(f"n_{part}={size}: at least one sample is needed")
        x, y = draw(stream, size)
        parts[f"x_{part}"] = torch.from_numpy(x).float()
        parts[f"y_{part}"] = torch.from_numpy(y).float().unsqueeze(1)
    return parts


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{i + 1}" for i in range(count))
