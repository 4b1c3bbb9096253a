"""Linear symmetries of vectors, and of several vectors moved alike."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.zoo.functions import (
    Function,
    cross,
    form,
    generic,
    momenta,
    normal,
    orthogonal,
    pairs,
    positive,
    soft,
    square,
    symplectic,
)
from benchmarks.zoo.invariants import (
    ISOTROPIC,
    LOPSIDED,
    MINKOWSKI,
    conjugated,
    padded,
    radial,
    stacked,
    symmetric,
    turned,
)
from benchmarks.zoo.task import ZooTask, balanced
from lieaugmenter.lie import catalogue

# -- rotations -------------------------------------------------------------------------------------


def rotations() -> list[ZooTask]:
    """so(n) of a whole space, or of a subspace along axes or not."""
    family, tilt4, tilt5 = "rotation", orthogonal(4, 3), orthogonal(5, 1)
    so2, so3 = catalogue.so(2), catalogue.so(3)

    def spin_field(x: Tensor) -> Tensor:
        r2 = square(x).unsqueeze(-1)
        quarter = torch.stack([-x[..., 1], x[..., 0]], dim=-1)
        return x * (0.4 + 1 / (1 + r2)) + 0.8 * quarter * (r2 / 2).tanh()

    mix = generic(3, 4, seed=17)

    def plane_field(z: Tensor) -> Tensor:
        """Turns with its first two coordinates; the others are invariant."""
        plane = z[..., :2]
        quarter = torch.stack([-plane[..., 1], plane[..., 0]], dim=-1)
        length = square(plane).add(0.1).sqrt().unsqueeze(-1)
        values = mix(torch.cat([length, z[..., 2:]], dim=-1))
        moved = plane * (1 + 0.5 * values[..., :1].tanh()) + quarter * values[..., 1:2].tanh()
        return torch.cat([moved, values[..., 2:]], dim=-1)

    angles = generic(3, seed=8)

    def two_vectors(x: Tensor) -> Tensor:
        return angles(soft(pairs(lambda a, b: (a * b).sum(-1), x, itself=True) / 2))

    return [
        symmetric(
            "so2-r2",
            family,
            "vector",
            2,
            so2,
            "so(2)",
            normal(2, mean=(0.4, -0.3)),
            radial(2, 11),
            f"A function of the length. {LOPSIDED}",
        ),
        symmetric(
            "so2-r2-field",
            family,
            "vector",
            2,
            so2,
            "so(2)",
            normal(2),
            spin_field,
            f"A swirl. {ISOTROPIC}",
            output="same",
        ),
        symmetric(
            "so2-r5-axes",
            family,
            "vector",
            5,
            padded(so2, 5),
            "so(2)",
            normal(5, scale=(1.0, 1.0, 0.8, 1.2, 1.0)),
            radial(2, 201, dim=5),
            "Turns the plane of axes 0 and 1. The law of the inputs has the symmetry too.",
        ),
        symmetric(
            "so2-r5-tilted",
            family,
            "vector",
            5,
            conjugated(padded(so2, 5), tilt5),
            "so(2)",
            normal(5, mean=0.2, scale=(1.0, 0.8, 1.3, 0.9, 1.1)),
            turned(radial(2, 13, dim=5), tilt5),
            f"Turns a plane along no axis. {LOPSIDED}",
        ),
        symmetric(
            "so2-r4-field",
            family,
            "vector",
            4,
            conjugated(padded(so2, 4), tilt4),
            "so(2)",
            normal(4),
            lambda x: turned(plane_field, tilt4)(x) @ tilt4.mT.to(x),
            f"A field that turns with a tilted plane. {ISOTROPIC}",
            output="same",
        ),
        symmetric(
            "so2-r3-classes",
            family,
            "vector",
            3,
            padded(so2, 3),
            "so(2)",
            normal(3, mean=(0.2, 0.1, 0.0)),
            balanced(radial(2, 14, 3, dim=3), normal(3)),
            f"Three classes about the third axis. {LOPSIDED}",
            classes=3,
        ),
        symmetric(
            "so3-r3",
            family,
            "vector",
            3,
            so3,
            "so(3)",
            normal(3),
            radial(3, 15),
            f"A function of the length. {ISOTROPIC}",
        ),
        symmetric(
            "so3-r3-classes",
            family,
            "vector",
            3,
            so3,
            "so(3)",
            normal(3, mean=(0.3, 0.0, -0.2)),
            lambda x: stacked(torch.zeros_like(x[..., 0]), square(x) - 1.5, 2 * square(x) - 5.0),
            f"Three nested shells. {LOPSIDED}",
            classes=3,
        ),
        symmetric(
            "so3-r4",
            family,
            "vector",
            4,
            padded(so3, 4),
            "so(3)",
            normal(4, scale=(1.2, 0.9, 1.0, 1.0)),
            radial(3, 16, dim=4),
            f"Turns the first three of four coordinates. {LOPSIDED}",
        ),
        symmetric(
            "so3-r5-tilted",
            family,
            "vector",
            5,
            conjugated(padded(so3, 5), tilt5),
            "so(3)",
            normal(5),
            turned(radial(3, 18, dim=5), tilt5),
            f"Turns a three-dimensional subspace along no axis. {ISOTROPIC}",
        ),
        symmetric(
            "so3-two-vectors",
            family,
            "points",
            3,
            so3,
            "so(3)",
            normal(2, 3, mean=0.2),
            two_vectors,
            f"Lengths and angle of two vectors. {LOPSIDED}",
        ),
        symmetric(
            "so4-r4",
            family,
            "vector",
            4,
            catalogue.so(4),
            "so(4)",
            normal(4),
            radial(4, 19),
            f"A function of the length. {ISOTROPIC}",
        ),
        symmetric(
            "so4-r5",
            family,
            "vector",
            5,
            padded(catalogue.so(4), 5),
            "so(4)",
            normal(5),
            radial(4, 20, dim=5),
            f"Turns the first four of five coordinates. {ISOTROPIC}",
        ),
    ]


# -- boosts ----------------------------------------------------------------------------------------


def boosts() -> list[ZooTask]:
    """so(p, q): functions of indefinite forms."""
    family = "lorentz"

    def interval(signs: tuple[float, ...], seed: int) -> Function:
        function = generic(1, seed=seed)
        return lambda x: function(2 * soft(form(x, x, signs) / 2).unsqueeze(-1))

    def masses(x: Tensor) -> Tensor:
        """Squared masses of the particles and of their pairs."""
        products = -pairs(lambda a, b: form(a, b, MINKOWSKI), x, itself=True)
        return products.clamp_min(1e-9).log1p()

    of_three, of_two, scores = generic(6, seed=22), generic(3, 4, seed=214), generic(3, 2, seed=204)
    planar = generic(3, seed=201)

    def scattering(x: Tensor) -> Tensor:
        """Each particle ends as a mixture of both, by coefficients that masses determine."""
        a, b, c, d = of_two(masses(x)).tanh().unbind(-1)
        first, second = x[..., 0, :], x[..., 1, :]
        return torch.stack(
            [
                (1 + 0.5 * a)[..., None] * first + 0.5 * b[..., None] * second,
                0.5 * c[..., None] * first + (1 + 0.5 * d)[..., None] * second,
            ],
            dim=-2,
        )

    def planar_products(x: Tensor) -> Tensor:
        return planar(soft(pairs(lambda a, b: form(a, b, (-1.0, 1.0, 1.0)), x, itself=True)))

    return [
        symmetric(
            "so11-r2",
            family,
            "vector",
            2,
            catalogue.so_pq(1, 1),
            "so(1,1)",
            normal(2, mean=(0.2, 0.4)),
            interval((-1.0, 1.0), 26),
            f"An interval. {LOPSIDED}",
        ),
        symmetric(
            "so12-r3",
            family,
            "vector",
            3,
            catalogue.so_pq(1, 2),
            "so(1,2)",
            normal(3),
            interval((-1.0, 1.0, 1.0), 27),
            f"An interval. {LOPSIDED}",
        ),
        symmetric(
            "so12-two-vectors",
            family,
            "vector",
            3,
            catalogue.so_pq(1, 2),
            "so(1,2)",
            normal(2, 3),
            planar_products,
            f"Three products of two vectors. {LOPSIDED}",
        ),
        symmetric(
            "so13-r4",
            family,
            "vector",
            4,
            catalogue.so_pq(1, 3),
            "so(1,3)",
            normal(4),
            interval(MINKOWSKI, 28),
            f"An interval, with inputs of any sign. {LOPSIDED}",
        ),
        symmetric(
            "so13-momenta",
            family,
            "fourvector",
            4,
            catalogue.so_pq(1, 3),
            "so(1,3)",
            momenta(3),
            lambda x: of_three(masses(x)),
            f"Invariant masses of three particles. {LOPSIDED}",
        ),
        symmetric(
            "so13-momenta-classes",
            family,
            "fourvector",
            4,
            catalogue.so_pq(1, 3),
            "so(1,3)",
            momenta(2),
            balanced(lambda x: scores(masses(x)), momenta(2)),
            f"Two classes of pairs of particles by their masses. {LOPSIDED}",
            classes=2,
        ),
        symmetric(
            "so13-scattering",
            family,
            "fourvector",
            4,
            catalogue.so_pq(1, 3),
            "so(1,3)",
            momenta(2),
            scattering,
            f"Momenta to momenta. {LOPSIDED}",
            output="same",
        ),
        symmetric(
            "so22-r4",
            family,
            "vector",
            4,
            catalogue.so_pq(2, 2),
            "so(2,2)",
            normal(4),
            interval((-1.0, -1.0, 1.0, 1.0), 29),
            "A form of split signature. The law of the inputs has the compact part.",
        ),
    ]


# -- scalings --------------------------------------------------------------------------------------


def scalings() -> list[ZooTask]:
    """Homogeneous functions."""
    family = "scaling"
    sphere, field3, powers = (
        generic(3, seed=51, pace=2.0),
        generic(3, 3, seed=52),
        generic(2, seed=53),
    )
    two, angle, cone = generic(2, seed=211), generic(3, seed=55), generic(1, seed=56, pace=2.0)

    def direction(x: Tensor) -> Tensor:
        return x / square(x).sqrt().unsqueeze(-1)

    def homogeneous_field(x: Tensor) -> Tensor:
        return square(x).sqrt().unsqueeze(-1) * field3(2 * direction(x))

    def angle_and_ratio(x: Tensor) -> Tensor:
        a, b = x[..., 0, :], x[..., 1, :]
        total = square(a) + square(b)
        inner = (a * b).sum(-1)
        return angle(2 * stacked(square(a) / total, inner / total, (inner / total).square()))

    def slope(x: Tensor) -> Tensor:
        return cone(2 * (x[..., 2] / square(x).sqrt()).unsqueeze(-1))

    uneven = torch.diag(torch.tensor([1.0, -2.0, 0.5])).unsqueeze(0)
    alike = torch.stack(
        [torch.diag(torch.tensor([1.0, 1.0, 0, 0])), torch.diag(torch.tensor([0, 0, 1.0, 1.0]))]
    )
    return [
        symmetric(
            "scaling-r3",
            family,
            "vector",
            3,
            catalogue.scaling(3),
            "scaling",
            normal(3, mean=(1.0, -1.0, 1.5), scale=0.7),
            lambda x: sphere(1.5 * direction(x)),
            f"A function of the direction. {LOPSIDED}",
        ),
        symmetric(
            "scaling-r3-field",
            family,
            "vector",
            3,
            catalogue.scaling(3),
            "scaling",
            normal(3, mean=(1.0, -1.0, 1.5), scale=0.7),
            homogeneous_field,
            f"A field homogeneous of degree one. {LOPSIDED}",
            output="same",
        ),
        symmetric(
            "anisotropic-scaling-r3",
            family,
            "vector",
            3,
            uneven,
            "anisotropic scaling",
            positive(3),
            lambda x: powers(
                stacked(
                    2 * x[..., 0].log() + x[..., 1].log(), x[..., 0].log() - 2 * x[..., 2].log()
                )
            ),
            f"Rates 1, -2 and 1/2, on positive inputs. {LOPSIDED}",
        ),
        symmetric(
            "scalings-r4",
            family,
            "vector",
            4,
            alike,
            "scalings(2)",
            positive(4),
            lambda x: two(
                2 * stacked(x[..., 0].log() - x[..., 1].log(), x[..., 2].log() - x[..., 3].log())
            ),
            f"Two ratios, on positive inputs. {LOPSIDED}",
        ),
        symmetric(
            "so2-scaling-r3",
            family,
            "vector",
            3,
            torch.cat([padded(catalogue.so(2), 3), catalogue.scaling(3)]),
            "so(2) ⊕ scaling",
            normal(3, mean=(0.2, 0.0, 0.4)),
            slope,
            f"The slope against the third axis. {LOPSIDED}",
        ),
        symmetric(
            "so3-scaling-points",
            family,
            "points",
            3,
            torch.cat([catalogue.so(3), catalogue.scaling(3)]),
            "so(3) ⊕ scaling",
            normal(2, 3),
            angle_and_ratio,
            "Angle and ratio of two vectors. The law of the inputs has the rotations.",
        ),
    ]


# -- other linear algebras -------------------------------------------------------------------------


def _minors(x: Tensor) -> Tensor:
    return pairs(cross, x)


def linear_algebras() -> list[ZooTask]:
    """sl, sp, u, and nilpotent ones."""
    family = "linear"
    areas, area, volume = generic(3, seed=61), generic(1, seed=62), generic(1, seed=63)
    forms, sheared, steps = generic(3, seed=64), generic(3, seed=65), generic(2, seed=214)
    flag, hermitian = generic(6, seed=213), generic(4, seed=68)

    def jordan_invariants(x: Tensor) -> Tensor:
        a, b, c = x.unbind(-1)
        return stacked(c, soft(b.square() - 2 * a * c))

    def flags(x: Tensor) -> Tensor:
        """Heights, areas of the last two coordinates, and the volume of three vectors."""
        heights, lower = x[..., 2], x[..., 1:]
        volume3 = torch.linalg.det(x).unsqueeze(-1)
        return torch.cat([heights, soft(_minors(lower)[..., :2]), soft(volume3)], dim=-1)

    def hermitian_products(x: Tensor) -> Tensor:
        a, b = x[..., 0, :], x[..., 1, :]
        inner = (a * b).sum(-1)
        return soft(stacked(square(a) / 2, square(b) / 2, inner, symplectic(a, b)) / 2)

    shear = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])
    return [
        symmetric(
            "sl2-three-points",
            family,
            "points",
            2,
            catalogue.sl(2),
            "sl(2)",
            normal(3, 2),
            lambda x: areas(soft(_minors(x))),
            "Areas that three vectors span. The law of the inputs has the rotation.",
        ),
        symmetric(
            "sp2-two-copies",
            family,
            "points",
            2,
            catalogue.sl(2),
            "sl(2)",
            normal(2, 2, scale=(1.2, 0.8)),
            lambda x: area(2 * soft(_minors(x))),
            f"sp(2), the same algebra as sl(2), on two copies of the plane. {LOPSIDED}",
        ),
        symmetric(
            "sl3-three-points",
            family,
            "points",
            3,
            catalogue.sl(3),
            "sl(3)",
            normal(3, 3),
            lambda x: volume(2 * soft(torch.linalg.det(x) / 2).unsqueeze(-1)),
            "The volume of three vectors. The law of the inputs has the rotations.",
        ),
        symmetric(
            "sp4-three-points",
            family,
            "points",
            4,
            catalogue.sp(4),
            "sp(4)",
            normal(3, 4),
            lambda x: forms(soft(pairs(symplectic, x) / 2)),
            "Symplectic products of three vectors. The law of the inputs has the unitary part.",
        ),
        symmetric(
            "u2-two-vectors",
            family,
            "points",
            4,
            catalogue.u(2),
            "u(2)",
            normal(2, 4),
            lambda x: hermitian(1.5 * hermitian_products(x)),
            f"Hermitian products of two vectors of C². {ISOTROPIC}",
        ),
        symmetric(
            "shear-points",
            family,
            "points",
            2,
            shear,
            "shear",
            normal(2, 2),
            lambda x: sheared(torch.cat([x[..., 1], soft(_minors(x))], dim=-1)),
            f"Two vectors: their heights and area. {LOPSIDED}",
        ),
        symmetric(
            "jordan3-r3",
            family,
            "vector",
            3,
            catalogue.jordan(3),
            "jordan(3)",
            normal(3),
            lambda x: steps(1.5 * jordan_invariants(x)),
            f"A single nilpotent generator of rank two. {LOPSIDED}",
        ),
        symmetric(
            "heisenberg-points",
            family,
            "points",
            3,
            catalogue.heisenberg(3),
            "heisenberg(3)",
            normal(3, 3),
            lambda x: flag(flags(x)),
            f"Three vectors: heights, areas and volume. {LOPSIDED}",
        ),
    ]


# -- tori and sums ---------------------------------------------------------------------------------


def sums() -> list[ZooTask]:
    """Independent rotations of several subspaces, and one generator that turns two planes."""
    family, so2, tilt5 = "sum", catalogue.so(2), orthogonal(5, 2)
    radii, radii3, beat, both = (
        generic(k, seed=s) for k, s in ((2, 71), (3, 72), (4, 73), (2, 74))
    )

    def lengths(*sizes: int) -> Function:
        def of(x: Tensor) -> Tensor:
            parts = x.split([*sizes, x.shape[-1] - sum(sizes)], dim=-1)
            values = [square(part).add(0.1).sqrt().unsqueeze(-1) for part in parts[: len(sizes)]]
            return torch.cat([*values, parts[-1]], dim=-1)

        return of

    def one_to_two(x: Tensor) -> Tensor:
        """The lengths in both planes, and the product z² w̄ that turning by t and 2t keeps."""
        a, b, c, d = x.unbind(-1)
        real, imaginary = a.square() - b.square(), 2 * a * b
        product = stacked(real * c + imaginary * d, imaginary * c - real * d)
        return torch.cat([lengths(2, 2)(x), soft(product)], dim=-1)

    rates = catalogue.direct_sum(so2, so2).sum(0, keepdim=True)
    rates[0, 2:, 2:] *= 2
    return [
        symmetric(
            "torus-r4",
            family,
            "vector",
            4,
            catalogue.torus(2),
            "torus T^2",
            normal(4),
            lambda x: radii(lengths(2, 2)(x)),
            f"Lengths in two planes. {ISOTROPIC}",
        ),
        symmetric(
            "torus-r5-tilted",
            family,
            "vector",
            5,
            conjugated(padded(catalogue.torus(2), 5), tilt5),
            "torus T^2",
            normal(5, mean=0.2),
            turned(lambda x: radii3(lengths(2, 2)(x)), tilt5),
            f"so(2) × so(2) in planes along no axis, and a direction that stays. {LOPSIDED}",
        ),
        symmetric(
            "rates-1-2-r4",
            family,
            "vector",
            4,
            rates,
            "so(2) with rates 1:2",
            normal(4),
            lambda x: beat(one_to_two(x)),
            f"One generator: the second plane turns twice as fast. {ISOTROPIC}",
        ),
        symmetric(
            "so3-so2-r5",
            family,
            "vector",
            5,
            catalogue.direct_sum(catalogue.so(3), so2),
            "so(3) ⊕ so(2)",
            normal(5),
            lambda x: both(lengths(3, 2)(x)),
            f"Lengths in two complementary subspaces. {ISOTROPIC}",
        ),
    ]


# -- features that nothing depends on --------------------------------------------------------------


def free_directions() -> list[ZooTask]:
    """Irrelevant features: anything may be added along them."""
    family = "free"
    function, ring = generic(3, seed=81, waves=8), radial(2, 82, dim=3)
    into_last = torch.zeros(4, 4, 4)
    into_last[range(4), 3, range(4)] = 1.0
    return [
        symmetric(
            "irrelevant-feature-r4",
            family,
            "vector",
            4,
            into_last,
            "free(1)",
            normal(4, mean=0.3),
            lambda x: function(x[..., :3]),
            f"The last of four features does not matter: four generators. {LOPSIDED}",
        ),
        symmetric(
            "so2-irrelevant-feature-r4",
            family,
            "vector",
            4,
            torch.cat([padded(catalogue.so(2), 4), into_last]),
            "so(2) ⋉ free(1)",
            normal(4),
            lambda x: ring(x[..., :3]),
            "A rotation, and a last feature that does not matter: 1 + 4. The law of the inputs has "
            "the rotation.",
        ),
    ]


def linear_tasks() -> list[ZooTask]:
    """All tasks of this file."""
    groups = (rotations, boosts, scalings, linear_algebras, sums, free_directions)
    return [task for group in groups for task in group()]
