"""What the tasks of the zoo are made of: input laws and functions in general position.

All functions work in the dtype of their input; the tasks are verified in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]
Sampler = Callable[[int, torch.Generator], Tensor]


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(
    *shape: int, mean: Sequence[float] | float = 0.0, scale: Sequence[float] | float = 1.0
) -> Sampler:
    """Independent normal coordinates; mean and scale may differ along the last axis."""
    centre = torch.as_tensor(mean, dtype=torch.float64)
    spread = torch.as_tensor(scale, dtype=torch.float64)

    def draw(n: int, rng: torch.Generator) -> Tensor:
        return centre + spread * torch.randn((n, *shape), generator=rng, dtype=torch.float64)

    return draw


def positive(*shape: int, spread: float = 0.4) -> Sampler:
    """Independent log-normal coordinates, for what is only smooth away from zero."""

    def draw(n: int, rng: torch.Generator) -> Tensor:
        return (spread * torch.randn((n, *shape), generator=rng, dtype=torch.float64)).exp()

    return draw


def momenta(particles: int) -> Sampler:
    """Four-momenta (E, px, py, pz) of massive particles with masses of their own.

    Masses vary from sample to sample: on one mass shell a function of the mass is constant, and
    what is constant has every symmetry.
    """

    def draw(n: int, rng: torch.Generator) -> Tensor:
        momentum = torch.randn((n, particles, 3), generator=rng, dtype=torch.float64)
        mass = 0.3 + 1.2 * torch.rand((n, particles, 1), generator=rng, dtype=torch.float64)
        energy = (mass.square() + momentum.square().sum(-1, keepdim=True)).sqrt()
        return torch.cat([energy, momentum], dim=-1)

    return draw


def generic(
    inputs: int, outputs: int = 0, *, seed: int, waves: int = 6, pace: float = 1.3
) -> Function:
    """A linear function plus a few sine waves in random directions.

    Parameters
    ----------
    inputs, outputs
        Numbers of them; 0 outputs make a scalar without an axis of its own.
    seed
        Of the coefficients.
    waves, pace
        How many sine waves, and how fast they oscillate for inputs of size 1.
    """
    rng = stream(seed)
    width = max(outputs, 1)
    slope = 0.5 * torch.randn(inputs, width, generator=rng, dtype=torch.float64)
    directions = (
        pace / math.sqrt(inputs) * torch.randn(inputs, waves, generator=rng, dtype=torch.float64)
    )
    phases = 2 * math.pi * torch.rand(waves, generator=rng, dtype=torch.float64)
    heights = torch.randn(waves, width, generator=rng, dtype=torch.float64) / math.sqrt(waves)

    def function(u: Tensor) -> Tensor:
        angles = u @ directions.to(u) + phases.to(u)
        values = u @ slope.to(u) + 1.5 * angles.sin() @ heights.to(u)
        return values if outputs else values.squeeze(-1)

    return function


def network(inputs: int, outputs: int = 0, *, seed: int, width: int = 24) -> Function:
    """A frozen random network of two hidden tanh layers with biases, on flattened samples."""
    rng = stream(seed)

    def layer(before: int, after: int, gain: float) -> tuple[Tensor, Tensor]:
        weights = torch.randn(before, after, generator=rng, dtype=torch.float64)
        return gain * weights / math.sqrt(before), 0.7 * torch.randn(
            after, generator=rng, dtype=torch.float64
        )

    layers = [
        layer(inputs, width, 1.6),
        layer(width, width, 1.8),
        layer(width, max(outputs, 1), 1.0),
    ]

    def function(x: Tensor) -> Tensor:
        values = x
        for number, (weights, bias) in enumerate(layers):
            values = values @ weights.to(x) + bias.to(x)
            values = values.tanh() if number < 2 else values
        return values if outputs else values.squeeze(-1)

    return function


def square(x: Tensor) -> Tensor:
    """Squared Euclidean length along the last axis."""
    return x.square().sum(-1)


def cross(a: Tensor, b: Tensor) -> Tensor:
    """The signed area that two vectors of the plane span."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def soft(u: Tensor) -> Tensor:
    """A strictly monotone squashing: tames heavy tails and changes no symmetry."""
    return u / (1 + u.square()).sqrt()


def form(a: Tensor, b: Tensor, signs: Sequence[float]) -> Tensor:
    """The bilinear form with these signs on the diagonal."""
    return (a * b * a.new_tensor(signs)).sum(-1)


def symplectic(a: Tensor, b: Tensor) -> Tensor:
    """The symplectic form on (q, p)."""
    half = a.shape[-1] // 2
    return (a[..., :half] * b[..., half:] - a[..., half:] * b[..., :half]).sum(-1)


def pairs(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, itself: bool = False) -> Tensor:
    """The values of a function of two points on all pairs of a sample's points, on a last axis."""
    count = x.shape[-2]
    first = range(count)
    chosen = [(i, j) for i in first for j in first if i < j or (itself and i == j)]
    return torch.stack([function(x[..., i, :], x[..., j, :]) for i, j in chosen], dim=-1)


def distance(a: Tensor, b: Tensor) -> Tensor:
    return square(a - b).add(1e-3).sqrt()


def orthogonal(d: int, seed: int) -> Tensor:
    """A random rotation matrix."""
    q = torch.linalg.qr(torch.randn(d, d, generator=stream(seed), dtype=torch.float64)).Q
    return q * torch.linalg.det(q).sign() if d % 2 else q


def kepler_step(state: Tensor, duration: float, substeps: int = 12) -> Tensor:
    """Motion of one of two equal bodies about their centre, q'' = -q / (4 |q|³), by Runge-Kutta.

    It is equivariant exactly, whatever the step: every stage is.
    """

    def rate(s: Tensor) -> Tensor:
        q, p = s[..., :2], s[..., 2:]
        return torch.cat([p, -q / (4 * square(q).pow(1.5).unsqueeze(-1))], dim=-1)

    h = duration / substeps
    for _ in range(substeps):
        k1 = rate(state)
        k2 = rate(state + h / 2 * k1)
        k3 = rate(state + h / 2 * k2)
        k4 = rate(state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state


def leapfrog(
    q: Tensor, p: Tensor, force: Function, masses: Tensor, duration: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Positions and momenta after `duration`, by steps of kick, drift, kick."""
    h = duration / steps
    for _ in range(steps):
        p = p + h / 2 * force(q)
        q = q + h * p / masses
        p = p + h / 2 * force(q)
    return q, p
