"""Symmetries of space: sets of points, states of bodies, and images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.zoo import blobs
from benchmarks.zoo.functions import (
    Function,
    Sampler,
    cross,
    distance,
    generic,
    kepler_step,
    leapfrog,
    normal,
    pairs,
    soft,
    square,
)
from benchmarks.zoo.invariants import LOPSIDED, padded, stacked, symmetric
from benchmarks.zoo.task import ZooTask, balanced
from lieaugmenter.data import dynamics
from lieaugmenter.lie import catalogue

# -- motions and translations ----------------------------------------------------------------------


def _differences(x: Tensor) -> Tensor:
    return (x[..., 1:, :] - x[..., :1, :]).flatten(-2)


def _area(x: Tensor) -> Tensor:
    """Signed area of the first three points."""
    return cross(x[..., 1, :] - x[..., 0, :], x[..., 2, :] - x[..., 0, :]).unsqueeze(-1)


def _swarm(weights: Tensor) -> Function:
    """Points after a step in which they attract each other, each pair by a law of its own."""

    def step(x: Tensor) -> Tensor:
        away = x.unsqueeze(-3) - x.unsqueeze(-2)
        pull = weights.to(x) / (0.5 + square(away))
        return x + (pull.unsqueeze(-1) * away).sum(-2)

    return step


def motions() -> list[ZooTask]:
    """Affine symmetries of sets of points."""
    family, so2 = "motion", catalogue.so(2)
    triangle, ratios, tetra = generic(4, seed=31), generic(3, seed=32), generic(6, seed=33)
    shift2, shift3, row = generic(4, seed=34), generic(3, seed=35), generic(5, seed=36)
    sizes, tilted = generic(4, 2, seed=37), generic(5, seed=211)
    weights = torch.tensor([[0.0, 0.9, -0.4], [0.3, 0.0, 0.7], [-0.6, 0.5, 0.0]]).double()
    pinned, helix = generic(5, seed=39), generic(2, seed=40, pace=2.0)
    stretched = generic(4, seed=41)
    slanted = torch.zeros(1, 3, 3).double()
    slanted[0, :2, 2] = torch.tensor([0.8, 0.6])

    def shape_of_triangle(x: Tensor) -> Tensor:
        return torch.cat([pairs(distance, x), soft(_area(x))], dim=-1)

    def similarity(x: Tensor) -> Tensor:
        a, b, c = (d.unsqueeze(-1) for d in pairs(lambda p, q: square(p - q), x).unbind(-1))
        total = a + b + c
        return ratios(2 * torch.cat([a / total, b / total, _area(x) / total], dim=-1))

    def along(x: Tensor) -> Tensor:
        """Differences, and how far the first point is from the line of the translation."""
        off = x[..., 0, :] @ x.new_tensor([-0.6, 0.8])
        return tilted(torch.cat([_differences(x), off.unsqueeze(-1)], dim=-1))

    def cylinder(x: Tensor) -> Tensor:
        a, b = x[..., 0, :], x[..., 1, :]
        inner = (a[..., :2] * b[..., :2]).sum(-1)
        turns = stacked(square(a[..., :2]), square(b[..., :2]), inner, cross(a, b))
        height = (a[..., 2] - b[..., 2]).unsqueeze(-1)
        return pinned(torch.cat([1.5 * soft(turns / 2), height], dim=-1))

    def unscrewed(x: Tensor) -> Tensor:
        """Coordinates in the frame that turns with the height."""
        c, s = x[..., 2].cos(), x[..., 2].sin()
        return helix(stacked(x[..., 0] * c + x[..., 1] * s, x[..., 1] * c - x[..., 0] * s))

    def line(x: Tensor) -> Tensor:
        """Ratio of differences along the first axis; the second axis counts as it is."""
        first = x[..., 0]
        gaps = stacked(first[..., 1] - first[..., 0], first[..., 2] - first[..., 0])
        unit = gaps / square(gaps).sqrt().unsqueeze(-1)
        # The ratio is the double angle, which is smooth also where a gap changes its sign.
        ratio = stacked(
            unit[..., 0].square() - unit[..., 1].square(), 2 * unit[..., 0] * unit[..., 1]
        )
        return stretched(torch.cat([ratio, x[..., :2, 1]], dim=-1))

    screw = padded(so2, 4).clone()
    screw[0, 2, 3] = 1.0
    aff1 = torch.zeros(2, 3, 3)
    aff1[0, 0, 0], aff1[1, 0, 2] = 1.0, 1.0
    upright = torch.stack([padded(so2, 4)[0], catalogue.translations(3)[2]])
    return [
        symmetric(
            "se2-points",
            family,
            "affine",
            2,
            catalogue.se(2),
            "se(2)",
            normal(3, 2, mean=0.3),
            lambda x: triangle(shape_of_triangle(x)),
            f"Sides and signed area of a triangle. {LOPSIDED}",
        ),
        symmetric(
            "se2-points-classes",
            family,
            "affine",
            2,
            catalogue.se(2),
            "se(2)",
            normal(3, 2),
            balanced(lambda x: sizes(shape_of_triangle(x)), normal(3, 2)),
            "Two classes of triangles. The law of the inputs has the rotation, not the "
            "translations.",
            classes=2,
        ),
        symmetric(
            "se2-swarm",
            family,
            "affine",
            2,
            catalogue.se(2),
            "se(2)",
            normal(3, 2),
            _swarm(weights),
            "Three points that attract and repel each other. The law of the "
            "inputs has the rotation, not the translations.",
            output="same",
        ),
        symmetric(
            "se3-points",
            family,
            "affine",
            3,
            catalogue.se(3),
            "se(3)",
            normal(4, 3),
            lambda x: tetra(pairs(distance, x) - 1.5),
            "Six distances of four points. The law of "
            "the inputs has the rotations, not the translations.",
        ),
        symmetric(
            "se3-swarm",
            family,
            "affine",
            3,
            catalogue.se(3),
            "se(3)",
            normal(3, 3, mean=0.2),
            _swarm(weights),
            f"Three points that attract and repel each other. {LOPSIDED}",
            output="same",
        ),
        symmetric(
            "sim2-points",
            family,
            "affine",
            2,
            torch.cat([catalogue.se(2), catalogue.lift(catalogue.scaling(2))]),
            "sim(2)",
            normal(3, 2),
            similarity,
            "The shape of a triangle, whatever its size. The law of the "
            "inputs has the rotation only.",
        ),
        symmetric(
            "translations-r2",
            family,
            "affine",
            2,
            catalogue.translations(2),
            "translations(2)",
            normal(3, 2),
            lambda x: shift2(_differences(x)),
            f"A function of the differences of three points. {LOPSIDED}",
        ),
        symmetric(
            "translations-r3",
            family,
            "affine",
            3,
            catalogue.translations(3),
            "translations(3)",
            normal(2, 3),
            lambda x: shift3(_differences(x)),
            f"A function of the difference of two points. {LOPSIDED}",
        ),
        symmetric(
            "translation-x",
            family,
            "affine",
            2,
            catalogue.translations(2)[:1],
            "translations(1)",
            normal(3, 2),
            lambda x: row(torch.cat([_differences(x), x[..., 0, 1:]], dim=-1)),
            f"Differences of three points, and the height of one. {LOPSIDED}",
        ),
        symmetric(
            "translation-slanted",
            family,
            "affine",
            2,
            slanted,
            "translations(1)",
            normal(3, 2),
            along,
            f"Translations along (4, 3) only. {LOPSIDED}",
        ),
        symmetric(
            "cylinder",
            family,
            "affine",
            3,
            upright,
            "so(2) ⊕ translations(1)",
            normal(2, 3, mean=(0.2, 0.0, 0.0)),
            cylinder,
            f"Two points: turns about the third axis, translations along it. {LOPSIDED}",
        ),
        symmetric(
            "screw",
            family,
            "affine",
            3,
            screw,
            "screw",
            normal(3, scale=(1.0, 1.0, 1.2)),
            unscrewed,
            f"One point: turning while it climbs. {LOPSIDED}",
        ),
        symmetric(
            "aff1-points",
            family,
            "affine",
            2,
            aff1,
            "aff(1)",
            normal(3, 2),
            line,
            "Three points: shifts and stretches along the first axis, a solvable algebra that is "
            f"not abelian. {LOPSIDED}",
        ),
    ]


# -- dynamics --------------------------------------------------------------------------------------


def _orbit_states(n: int, rng: torch.Generator) -> Tensor:
    """States of body 1 on the library's two-body orbits: (q, p) in R⁴."""
    source = np.random.default_rng(int(torch.randint(2**31, (1,), generator=rng)))
    paths = dynamics.orbits(source.uniform(-np.pi, np.pi, -(-n // 20)), source)
    return torch.from_numpy(paths[..., :4].reshape(-1, 4)[:n].copy())


def _trapped_pair(x: Tensor) -> Tensor:
    """(q1, p1, q2, p2) of two bodies that attract each other in a common central trap."""
    masses = x.new_tensor([1.0, 1.5]).unsqueeze(-1)

    def force(q: Tensor) -> Tensor:
        trap = -1.2 * q / (1 + square(q)).sqrt().unsqueeze(-1)
        away = q - q.flip(-2)
        return trap - 1.5 * away / (0.5 + square(away)).unsqueeze(-1)

    state = x.unflatten(-1, (2, 2, 2))
    q, p = leapfrog(state[..., 0, :], state[..., 1, :], force, masses, 1.5, 5)
    return torch.stack([q, p], dim=-2).flatten(-3)


def dynamical() -> list[ZooTask]:
    """Maps of states that commute with rotations."""
    family = "dynamics"

    def central_force(x: Tensor) -> Tensor:
        return -2 * x / (0.5 + square(x)).pow(1.5).unsqueeze(-1)

    def oscillator(x: Tensor) -> Tensor:
        """The exact flow of H = I + I²/4 with I = (q² + p²)/2: a turn by 1 + I/2."""
        angle = 1 + square(x) / 4
        c, s, q, p = angle.cos(), angle.sin(), x[..., 0], x[..., 1]
        return stacked(c * q + s * p, c * p - s * q)

    return [
        symmetric(
            "central-force",
            family,
            "vector",
            3,
            catalogue.so(3),
            "so(3)",
            normal(3, mean=(0.3, 0.0, 0.2)),
            central_force,
            f"The acceleration in a softened central field. {LOPSIDED}",
            output="same",
        ),
        symmetric(
            "nonlinear-oscillator",
            family,
            "vector",
            2,
            catalogue.so(2),
            "so(2)",
            normal(2, mean=(0.5, 0.0)),
            oscillator,
            f"A Hamiltonian flow whose frequency grows with the action. {LOPSIDED}",
            output="same",
        ),
        symmetric(
            "kepler-orbits",
            family,
            "vector",
            4,
            catalogue.diagonal(catalogue.so(2), 2),
            "so(2)",
            _orbit_states,
            lambda x: kepler_step(x, dynamics.TIME_STEP),
            "Body 1 of data/dynamics.py one time step later. Of the eight columns there four are "
            "minus the others, and half of the generators would move nothing. Angles are "
            "uniform: the law of the inputs has the symmetry. Orbits are nearly circles, so that "
            "positions all but tell momenta (20 states of each orbit).",
            output="same",
        ),
        symmetric(
            "two-body-trap",
            family,
            "vector",
            8,
            catalogue.diagonal(catalogue.so(2), 4),
            "so(2)",
            normal(8, scale=(1.2, 1.2, 0.8, 0.8, 1.2, 1.2, 0.8, 0.8)),
            _trapped_pair,
            "Two bodies of unequal mass, (q1, p1, q2, p2), in a central trap; without the trap the "
            "free motion of their centre has linear symmetries of its own. The law of the inputs "
            "has the symmetry.",
            output="same",
        ),
    ]


# -- images ----------------------------------------------------------------------------------------


def image_task(
    name: str,
    family: str,
    kind: str,
    truth: Tensor,
    algebra: str,
    target: Function,
    note: str,
    *,
    sample: Sampler | None = None,
    classes: int = 0,
) -> ZooTask:
    """A task on images of two blobs, with the target in terms of the blobs."""
    return ZooTask(
        name=name,
        family=family,
        action="image",
        output="invariant",
        dim=2,
        truth=truth.double(),
        algebra=algebra,
        kind=kind,
        note=f"{note} 12 × 12 pixels sample the field, so the symmetry of the pixels is that of "
        f"the blobs up to sampling and the frame's border.",
        sample=blobs.blobs() if sample is None else sample,
        target=target,
        classes=classes,
        observe=blobs.render,
        flow=blobs.flow,
    )


def _turning(z: Tensor) -> Tensor:
    """What rotations about the centre keep: lengths and angle of the blobs' centres."""
    centre = z[..., :2] / 0.3
    inner = pairs(lambda a, b: (a * b).sum(-1), centre, itself=True)
    return soft(torch.cat([inner, pairs(cross, centre)], dim=-1) / 2)


def _shifting(z: Tensor) -> Tensor:
    """What translations keep: how one centre lies to the other."""
    return _differences(z[..., :2] / 0.3)


def images() -> list[ZooTask]:
    """Images of blobs that may be turned or shifted."""
    family = "image"
    turned, classes, shifted = generic(4, seed=91), generic(4, 3, seed=92), generic(2, seed=93)
    sideways = generic(3, seed=94)

    def along_x(z: Tensor) -> Tensor:
        return torch.cat([_shifting(z), z[..., 0, 1:2] / 0.3], dim=-1)

    so2 = catalogue.lift(catalogue.so(2))
    return [
        image_task(
            "image-rotation",
            family,
            "continuous",
            so2,
            "so(2)",
            lambda z: turned(_turning(z)),
            "Turns about the centre. The law of the blobs nearly has it: centres keep to a square.",
        ),
        image_task(
            "image-rotation-classes",
            family,
            "continuous",
            so2,
            "so(2)",
            balanced(lambda z: classes(_turning(z)), blobs.blobs()),
            "Three classes that turning keeps.",
            classes=3,
        ),
        image_task(
            "image-translations",
            family,
            "continuous",
            catalogue.translations(2),
            "translations(2)",
            lambda z: shifted(_shifting(z)),
            f"How the blobs lie to each other. {LOPSIDED}",
        ),
        image_task(
            "image-translation-x",
            family,
            "continuous",
            catalogue.translations(2)[:1],
            "translations(1)",
            lambda z: sideways(along_x(z)),
            f"How the blobs lie to each other, and the height of the brighter blob. {LOPSIDED}",
        ),
    ]


def spatial_tasks() -> list[ZooTask]:
    """All tasks of this file."""
    return [*motions(), *dynamical(), *images()]
