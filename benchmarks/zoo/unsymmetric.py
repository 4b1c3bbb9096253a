"""Tasks without a continuous symmetry: none, discrete ones only, approximate and broken ones."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.zoo import blobs
from benchmarks.zoo.functions import (
    Function,
    Sampler,
    form,
    generic,
    leapfrog,
    momenta,
    network,
    normal,
    pairs,
    soft,
    square,
    stream,
)
from benchmarks.zoo.invariants import MINKOWSKI, padded
from benchmarks.zoo.spatial import image_task
from benchmarks.zoo.task import ZooTask, balanced, deviation, no_generators
from lieaugmenter.lie import catalogue

_NOTHING = "No linear symmetry."


def _plain(
    name: str,
    kind: str,
    action: str,
    dim: int,
    sample: Sampler,
    target: Function,
    note: str,
    *,
    family: str | None = None,
    output: str = "invariant",
    classes: int = 0,
    nearest: Tensor | None = None,
) -> ZooTask:
    size = dim + 1 if action == "affine" else dim
    return ZooTask(
        name=name,
        family=kind if family is None else family,
        action=action,
        output=output,
        dim=dim,
        truth=no_generators(size),
        algebra="",
        kind=kind,
        note=note,
        sample=sample,
        target=target,
        classes=classes,
        nearest=no_generators(size) if nearest is None else nearest.double(),
    )


def _on_all_numbers(function: Function) -> Function:
    return lambda x: function(x.flatten(1))


# -- none ------------------------------------------------------------------------------------------


def _cubic(d: int, seed: int) -> Function:
    """A cubic polynomial in general position.

    Quadratic ones would not do: x'Ax + b'x has the rotations of A that keep b.
    """
    rng = stream(seed)
    first, second, third = (
        torch.randn((d,) * k, generator=rng, dtype=torch.float64) for k in (1, 2, 3)
    )

    def target(x: Tensor) -> Tensor:
        squares = torch.einsum("...i,...j,ij->...", x, x, second.to(x))
        cubes = torch.einsum("...i,...j,...k,ijk->...", x, x, x, third.to(x))
        return x @ first.to(x) + 0.5 * squares + 0.3 * cubes

    return target


def _trigonometric(x: Tensor) -> Tensor:
    a, b, c = x.unbind(-1)
    return (1.3 * a + 0.4).sin() + (b - 0.7 * c + 1).cos() + 0.6 * (0.5 * a + 1.4 * c).sin()


def _additive(x: Tensor) -> Tensor:
    """One function of each feature, no two alike."""
    a, b, c, d = x.unbind(-1)
    return (
        (1.5 * a + 0.3).sin() + (0.7 * b).exp() + 1.5 * (2 * c - 0.5).tanh() + 0.2 * d**3 + 0.5 * d
    )


def _piecewise(x: Tensor) -> Tensor:
    """Two sheets that meet in a crease, and a kink: continuous, not smooth."""
    a, b, c = x.unbind(-1)
    first = 0.8 * a + (b + 0.5).square() - 0.6 * c
    second = 1.2 - 0.5 * a + b * c + 0.6 * (c - 0.4).square()
    return torch.maximum(first, second) + (a - 0.3 * b + 0.2).abs()


def _mixture(d: int, seed: int) -> Function:
    """Bumps of different height around random places."""
    rng = stream(seed)
    places = 1.2 * torch.randn(6, d, generator=rng, dtype=torch.float64)
    heights = torch.linspace(-1.5, 2.0, 6, dtype=torch.float64)
    return lambda x: (-square(x.unsqueeze(-2) - places.to(x))).exp() @ heights.to(x)


def _rosenbrock(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return ((1 - a).square() + 3 * (b - a.square()).square()).log1p()


def _henon(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return torch.stack([1 - 0.8 * a.square() + b, 0.5 * a], dim=-1)


def without() -> list[ZooTask]:
    """Nothing to be found."""
    kind = "none"
    image_net, image_classes = network(4, seed=121), network(4, 3, seed=122)

    def arrangement(z: Tensor) -> Tensor:
        """Where the blobs are."""
        return z[..., :2].flatten(1) / 0.3

    nothing3 = no_generators(3)
    return [
        _plain(
            "none-network-r2",
            kind,
            "vector",
            2,
            normal(2),
            network(2, seed=101),
            f"A random network. {_NOTHING}",
        ),
        _plain(
            "none-network-r3",
            kind,
            "vector",
            3,
            normal(3),
            network(3, seed=102),
            f"A random network. {_NOTHING}",
        ),
        _plain(
            "none-network-r5",
            kind,
            "vector",
            5,
            normal(5, scale=(1.0, 0.7, 1.2, 0.9, 1.0)),
            network(5, seed=103),
            f"A random network. {_NOTHING}",
        ),
        _plain(
            "none-cubic-r3",
            kind,
            "vector",
            3,
            normal(3, scale=0.8),
            _cubic(3, 104),
            f"A cubic polynomial in general position. {_NOTHING}",
        ),
        _plain(
            "none-cubic-r4",
            kind,
            "vector",
            4,
            normal(4, scale=0.8),
            _cubic(4, 105),
            f"A cubic polynomial in general position. {_NOTHING}",
        ),
        _plain(
            "none-trigonometric-r3",
            kind,
            "vector",
            3,
            normal(3),
            _trigonometric,
            f"Three waves. {_NOTHING}",
        ),
        _plain(
            "none-additive-r4",
            kind,
            "vector",
            4,
            normal(4),
            _additive,
            f"A sum of functions of single features. {_NOTHING}",
        ),
        _plain(
            "none-piecewise-r3",
            kind,
            "vector",
            3,
            normal(3),
            _piecewise,
            f"Continuous with creases; differentiable almost everywhere. {_NOTHING}",
        ),
        _plain(
            "none-mixture-r3",
            kind,
            "vector",
            3,
            normal(3),
            _mixture(3, 106),
            f"Bumps, on isotropic inputs. {_NOTHING}",
        ),
        _plain(
            "none-rosenbrock-r2",
            kind,
            "vector",
            2,
            normal(2),
            _rosenbrock,
            f"A bent valley. {_NOTHING}",
        ),
        _plain(
            "none-classes-r3",
            kind,
            "vector",
            3,
            normal(3),
            balanced(network(3, 3, seed=107), normal(3)),
            f"Three classes by a random network. {_NOTHING}",
            classes=3,
        ),
        _plain(
            "none-field-r3",
            kind,
            "vector",
            3,
            normal(3),
            network(3, 3, seed=108),
            f"A random vector field. {_NOTHING}",
            output="same",
        ),
        _plain(
            "none-henon-r2",
            kind,
            "vector",
            2,
            normal(2, scale=0.8),
            _henon,
            f"The Hénon map. {_NOTHING}",
            output="same",
        ),
        _plain(
            "none-points",
            kind,
            "affine",
            2,
            normal(3, 2),
            _on_all_numbers(network(6, seed=109)),
            "A random network of three points. No affine symmetry.",
        ),
        _plain(
            "none-momenta",
            kind,
            "fourvector",
            4,
            momenta(2),
            _on_all_numbers(network(8, seed=110)),
            f"A random network of two four-momenta. {_NOTHING}",
        ),
        image_task(
            "none-image",
            kind,
            kind,
            nothing3,
            "",
            lambda z: image_net(arrangement(z)),
            "Where the blobs are. No affine symmetry.",
        ),
        image_task(
            "none-image-classes",
            kind,
            kind,
            nothing3,
            "",
            balanced(lambda z: image_classes(arrangement(z)), blobs.blobs()),
            "Three classes. No affine symmetry.",
            classes=3,
        ),
    ]


# -- discrete only ---------------------------------------------------------------------------------


def _pendulum(x: Tensor) -> Tensor:
    """(q, p) a time later; the flow commutes with x → -x and with nothing else that is linear."""
    one = torch.ones((), dtype=x.dtype)
    q, p = leapfrog(x[..., :1], x[..., 1:], lambda q: -1.5 * q.sin(), one, 1.2, 4)
    return torch.cat([q, p], dim=-1)


def discrete() -> list[ZooTask]:
    """Finite groups, which no generator belongs to."""
    kind = "discrete-only"
    even, sorted_out = generic(3, seed=204), generic(3, seed=132)
    four, six = generic(2, seed=205), generic(3, seed=134)

    def power(x: Tensor, k: int) -> Tensor:
        """Re z^k / r^(k-2): turned k times as fast, of the size of r²."""
        z = torch.complex(x[..., 0], x[..., 1])
        return (z**k).real / square(x[..., :2]).add(0.05) ** (k / 2 - 1)

    def c4(x: Tensor) -> Tensor:
        r2 = square(x)
        return four(torch.stack([(r2 + 0.1).sqrt(), 1.5 * soft(power(x, 4))], dim=-1))

    def c6(x: Tensor) -> Tensor:
        r2 = square(x[..., :2])
        return six(torch.stack([(r2 + 0.1).sqrt(), 1.5 * soft(power(x, 6)), x[..., 2]], dim=-1))

    def reflected(x: Tensor) -> Tensor:
        return even(torch.stack([x[..., 0].square(), x[..., 1], x[..., 2]], dim=-1))

    def exchanged(x: Tensor) -> Tensor:
        """Sums of powers; without the third there would be the rotation about (1, 1, 1)."""
        return sorted_out(
            torch.stack(
                [x.sum(-1) / 2, x.square().sum(-1) / 3, soft((x**3).sum(-1) / 3) * 2], dim=-1
            )
        )

    def lattice(x: Tensor) -> Tensor:
        a, b = x.unbind(-1)
        return (2 * a).sin() + 0.7 * (2 * b).cos() + 0.6 * (2 * a + 2 * b + 0.5).cos()

    return [
        _plain(
            "c4-r2",
            kind,
            "vector",
            2,
            normal(2),
            c4,
            "Quarter turns and reflections only, on isotropic inputs.",
        ),
        _plain(
            "c6-r3",
            kind,
            "vector",
            3,
            normal(3),
            c6,
            "Turns by 60 degrees about the third axis and reflections only.",
        ),
        _plain(
            "reflection-r3",
            kind,
            "vector",
            3,
            normal(3),
            reflected,
            "The sign of the first coordinate only.",
        ),
        _plain(
            "permutation-r3",
            kind,
            "vector",
            3,
            normal(3),
            exchanged,
            "Permutations of three coordinates only.",
        ),
        _plain(
            "pendulum",
            kind,
            "vector",
            2,
            normal(2, scale=(1.2, 1.2)),
            _pendulum,
            "The flow of a pendulum: x → -x only.",
            output="same",
        ),
        _plain(
            "lattice-r2",
            kind,
            "affine",
            2,
            normal(2, scale=1.2),
            lattice,
            "Translations by whole periods only.",
        ),
    ]


# -- broken by so much -----------------------------------------------------------------------------


def mixed(symmetric: Function, breaking: Function, share: float, sample: Sampler) -> Function:
    """A symmetric target plus one without symmetry, of a deviation `share` times its own."""
    ratio = share * deviation(symmetric, sample) / deviation(breaking, sample)
    return lambda x: symmetric(x) + ratio * breaking(x)


def broken() -> list[ZooTask]:
    """The same symmetric targets, broken by 1, 5 and 50 per cent."""
    ring, ball = generic(2, seed=141), generic(1, seed=142)
    shifts, masses = generic(4, seed=143), generic(3, seed=144)

    def around(x: Tensor) -> Tensor:
        length = square(x[..., :2]).add(0.1).sqrt()
        return ring(torch.stack([length, x[..., 2]], dim=-1))

    def length(x: Tensor) -> Tensor:
        return ball(square(x).add(0.1).sqrt().unsqueeze(-1))

    def differences(x: Tensor) -> Tensor:
        return shifts((x[..., 1:, :] - x[..., :1, :]).flatten(1))

    def products(x: Tensor) -> Tensor:
        values = -pairs(lambda a, b: form(a, b, MINKOWSKI), x, itself=True)
        return masses(values.clamp_min(1e-9).log1p())

    def force(x: Tensor) -> Tensor:
        return -2 * x / (0.5 + square(x)).pow(1.5).unsqueeze(-1)

    so2 = padded(catalogue.so(2), 3)
    # Name, action, dimension, law, symmetric part, other part, output, algebra, its name, shares.
    plans = [
        (
            "so2-r3",
            "vector",
            3,
            normal(3),
            around,
            network(3, seed=151),
            "invariant",
            so2,
            "so(2)",
            (0.01, 0.05, 0.5),
        ),
        (
            "so3-r3",
            "vector",
            3,
            normal(3),
            length,
            network(3, seed=152),
            "invariant",
            catalogue.so(3),
            "so(3)",
            (0.05, 0.5),
        ),
        (
            "translations-r2",
            "affine",
            2,
            normal(3, 2),
            differences,
            _on_all_numbers(network(6, seed=153)),
            "invariant",
            catalogue.translations(2),
            "translations(2)",
            (0.01, 0.5),
        ),
        (
            "so13-momenta",
            "fourvector",
            4,
            momenta(2),
            products,
            _on_all_numbers(network(8, seed=154)),
            "invariant",
            catalogue.so_pq(1, 3),
            "so(1,3)",
            (0.05,),
        ),
        (
            "central-force",
            "vector",
            3,
            normal(3),
            force,
            network(3, 3, seed=155),
            "same",
            catalogue.so(3),
            "so(3)",
            (0.05, 0.5),
        ),
    ]
    tasks = []
    for name, action, dim, law, whole, other, output, algebra, called, shares in plans:
        for share in shares:
            kind = "approximate" if share < 0.2 else "broken"
            tasks.append(
                _plain(
                    f"{name}-broken-{share:.0%}",
                    kind,
                    action,
                    dim,
                    law,
                    mixed(whole, other, share, law),
                    f"{called} broken by a random network of {share:.0%} of the deviation: no "
                    f"exact symmetry, the nearest algebra is {called}.",
                    output=output,
                    nearest=algebra,
                )
            )
    return tasks


def unsymmetric_tasks() -> list[ZooTask]:
    """All tasks without an exact continuous symmetry."""
    return [*without(), *discrete(), *broken()]
