"""Discrete symmetries beside the identity component: reflections, permutations, finite rotations.

A connected group of symmetries leaves open whether the task has reflections as well: O(n) or SO(n),
E(n) or SE(n). Candidates are tested by two predictors that were trained on different samples, as
`dimension` does for generators. Where a candidate R is a symmetry, f(Rx) - ρ(R)f(x) is only the
error of a predictor; the errors of two are independent, and their mean product has no bias.

What it is compared with: pairs of unrelated samples that lie as far apart as R moves a sample, so
that a transformation that hardly moves anything does not pass for a symmetry. Predictors know
nothing where they were not trained: a candidate that takes samples out of the region that the data
fill cannot be judged, and is reported so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.actions.linear import FourVectorAction, InvariantAction
from lieaugmenter.actions.spatial import AffineAction
from lieaugmenter.analysis.bench import DEFECT_BOUND
from lieaugmenter.analysis.bootstrap import LEAST_SAMPLES, bounds, resample, signed_root
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.coverage import equations_of
from lieaugmenter.analysis.identify import LARGEST_NAMED, identify
from lieaugmenter.analysis.pairs import partners
from lieaugmenter.lie.elements import Elements

PRESENT, ABSENT, UNCLEAR, UNJUDGED = "present", "absent", "unclear", "cannot be judged"
# Samples that are looked at: all pairs of them are compared.
_MOST_SAMPLES = 2000
# Samples of more numbers are looked at along so many random directions.
_LARGEST_SPACE = 256
# A candidate that moves samples less than this share of their size does nothing.
_IDLE = 1e-6
_AT_ONCE = 1024
# A candidate can be judged if moved samples spread at most this many times as far as the samples
# do, in any direction, and if at least this share of them has samples nearby.
_LARGEST_SPREAD = 2.0
_LEAST_COVERAGE = 0.5
# And if they break the equations that the samples fulfil by this at most (root mean square, in
# units of the features' deviations), which is what a learned generator may be off.
_MOST_BROKEN = 0.1
# Bounds over samples do not tell how else two predictors might have erred. With few samples their
# errors can resemble each other by chance: an asymmetry is one that they agree on.
_LEAST_AGREEMENT = 0.7
# A matrix this near to the identity component (Frobenius norm) belongs to it: components lie
# further apart, and learned generators are a few per cent off.
_NEAR = 0.25
_STARTS = 16
_STEPS = 60
# Up to these sizes every sign pattern, every plane and every pair of axes is a candidate.
_LARGEST_PLANES = 4
_LARGEST_PAIRS = 8
_ORDERS = range(3, 7)
# A transformation takes the identity component to itself if the algebra that it makes of the given
# one has cosines above this with it.
_SAME_SPAN = 0.9
# What sign changes of (E, px, py, pz) are called.
_FOUR_VECTOR_NAMES = {
    "reflection of axis 0": "time reversal",
    "reflection of axes 1, 2, 3": "parity",
    "parity": "time reversal and parity",
}
# Names that are listed before "and … others".
_MOST_LISTED = 6
# A finite group of more elements than this is not counted.
_LARGEST_ORDER = 400


@dataclass(frozen=True, eq=False)
class Candidate:
    """A transformation that may be a symmetry.

    Attributes
    ----------
    name
        What it does.
    matrix
        R, (d, d), which acts as elements do.
    order
        Of the points of a sample, if they are permuted: ``x[:, order]``.
    """

    name: str
    matrix: Float[Tensor, "d d"]
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Component:
    """What was measured of one candidate, and of others that differ by the identity component.

    Attributes
    ----------
    candidate
        The transformation that was tested.
    alike
        Names of candidates that are products of it and the identity component.
    outcome
        ``"present"``, ``"absent"``, ``"unclear"`` or ``"cannot be judged"``.
    defect
        Root of the mean product of both predictors' residuals, relative to that of pairs of samples
        as far apart as the candidate moves a sample: 0 for a symmetry, about 1 for none. The
        signed root of an estimate that may come out negative.
    lower, upper
        Its one-sided 95 % bootstrap bounds over samples.
    agreement
        Cosine between the residuals of the two predictors: about 0 where they are errors of either,
        1 where both see the same asymmetry.
    spread
        How many times as far as the samples the moved ones reach, in the worst direction.
    coverage
        Share of the moved samples that lie as near to samples as samples do.
    """

    candidate: Candidate
    alike: list[str]
    outcome: str
    defect: float
    lower: float
    upper: float
    agreement: float
    spread: float
    coverage: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.candidate.name,
            "matrix": self.candidate.matrix.tolist(),
            "order": None if self.candidate.order is None else list(self.candidate.order),
            **{
                name: getattr(self, name)
                for name in (
                    "alike",
                    "outcome",
                    "defect",
                    "lower",
                    "upper",
                    "agreement",
                    "spread",
                    "coverage",
                )
            },
        }


@dataclass(frozen=True, eq=False)
class Components:
    """The components of a symmetry group that were looked for.

    Attributes
    ----------
    group
        The whole group, such as ``"O(3)"`` or ``"SO(3)"``, with ``"at least"`` before it where
        something is unclear or could not be judged; ``"trivial"`` where nothing was found, and
        empty where generators have no name and nothing else was found.
    identity
        Name of the algebra of the identity component; None where there are no generators, or they
        have no name.
    components
        One for each component that was tested.
    contained
        Candidates that the identity component contains already.
    reasons
        What the name leaves open, in sentences.
    """

    group: str
    identity: str | None
    components: list[Component]
    contained: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def with_outcome(self, outcome: str) -> list[Component]:
        """The components of which that was found."""
        return [component for component in self.components if component.outcome == outcome]

    @property
    def representatives(self) -> Float[Tensor, "m d d"]:
        """One matrix for each component that is present, as `LieAugmenter` takes them.

        Permutations of points are none, and left out.
        """
        found = [c.candidate for c in self.with_outcome(PRESENT)]
        matrices = [candidate.matrix for candidate in found if candidate.order is None]
        d = self.components[0].candidate.matrix.shape[0] if self.components else 0
        return torch.stack(matrices) if matrices else torch.zeros(0, d, d)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "group": self.group,
            "identity": self.identity,
            "components": [component.to_json() for component in self.components],
            "contained": self.contained,
            "reasons": self.reasons,
        }

    def __str__(self) -> str:
        width = max([len(c.candidate.name) for c in self.components], default=0)
        lines = [f"group: {self.group or 'unnamed'}"]
        for c in self.components:
            bounds = f"{c.defect:6.3f} [{c.lower:6.3f}, {c.upper:6.3f}]"
            if c.outcome == UNJUDGED:
                bounds = f"spread {c.spread:.1f}, coverage {c.coverage:.2f}"
            alike = f"  like {_listed(c.alike)}" if c.alike else ""
            line = f"  {c.candidate.name:<{width}}  {c.outcome:<16}  {bounds:<24}{alike}"
            lines.append(line.rstrip())
        if self.contained:
            lines.append(f"  in the identity component: {_listed(self.contained)}")
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


@torch.no_grad()
def components(
    first: Callable[[Batch], Tensor],
    second: Callable[[Batch], Tensor],
    x: Batch,
    *,
    action: Action,
    output: Action,
    generators: Float[Tensor, "c d d"] | None = None,
    identity: str | None = None,
    candidates: Sequence[Candidate] | None = None,
    bound: float = DEFECT_BOUND,
    seed: int = 0,
) -> Components:
    """Test discrete transformations with two predictors of one task.

    Parameters
    ----------
    first, second
        Predictors that were trained on different samples.
    x
        Samples that neither has seen; at most 2000 are looked at.
    action, output
        How matrices act on inputs and outputs.
    generators
        Of the identity component, (c, d, d); what they reach is not listed again. None or empty if
        there is no continuous symmetry.
    identity
        Name of their algebra; `identify` is asked unless given.
    candidates
        What to test; those of `candidates_of` unless given.
    bound
        A candidate is present when its defect is surely below this, absent when surely above.
    seed
        Of the bootstrap and of the search in the identity component.

    Examples
    --------
    Lengths do not change in a mirror, and turning is not listed again:

    >>> from lieaugmenter.actions import VectorAction
    >>> from lieaugmenter.lie import catalogue
    >>> def length(x):
    ...     return x.norm(dim=-1, keepdim=True)
    >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    >>> found = components(
    ...     length, length, x, action=VectorAction(3), output=InvariantAction(),
    ...     generators=catalogue.so(3),
    ... )
    >>> found.group, len(found.components)
    ('O(3)', 1)
    """
    if batch_size(x) < LEAST_SAMPLES:
        raise ValueError(
            f"components need at least {LEAST_SAMPLES} samples to be judged; x has {batch_size(x)}"
        )
    x = map_tensors(lambda t: t[:_MOST_SAMPLES], x)
    frame = _frame(action, x)
    span = _in_frame(generators, frame)
    if identity is None and len(span) and action.dim <= LARGEST_NAMED:
        identified = identify(span, rows=action.rows, space_dim=action.space_dim)
        identity = identified.name if identified.named else None
    judge = _Judge(first, second, x, action, output, bound, seed)
    chosen = list(candidates_of(action, x) if candidates is None else candidates)
    moving = [candidate for candidate in chosen if judge.moves(candidate)]
    idle = [candidate.name for candidate in chosen if candidate not in moving]
    cosets, contained, impossible = _cosets(moving, span, frame, seed)
    found = [judge.component(coset) for coset in cosets]
    return Components(
        _group_name(identity, span, frame, found, action.rows),
        identity,
        found,
        contained,
        _reasons(found, span, idle, impossible, judge.agree),
    )


# -- what may be a symmetry ------------------------------------------------------------------------


def candidates_of(action: Action, x: Batch) -> list[Candidate]:
    """The transformations that are worth a test for an action.

    Sign changes, permutations of axes, and finite rotations of order 3 to 6 in coordinate planes;
    the same on each of several equal blocks of axes; swaps of neighbouring points of a sample. In
    homogeneous coordinates they act about the samples' mean.

    Parameters
    ----------
    action
        The action.
    x
        Samples, of which the shape and the mean are used.
    """
    n = action.rows
    frame = _frame(action, x)
    inverse = torch.linalg.inv(frame)
    found: list[Candidate] = []
    linear = _linear_candidates(n)
    if isinstance(action, FourVectorAction):
        linear = ((_FOUR_VECTOR_NAMES.get(name, name), matrix) for name, matrix in linear)
    for name, block in linear:
        matrix = torch.eye(action.dim, dtype=torch.float64)
        matrix[:n, :n] = block
        matrix = frame @ matrix @ inverse
        if not any(torch.allclose(matrix, other.matrix, atol=1e-9) for other in found):
            found.append(Candidate(name, matrix))
    return found + list(_point_swaps(action, x))


def _linear_candidates(n: int) -> Iterator[tuple[str, Tensor]]:
    """Names and matrices (n, n), the more usual ones first; some may come twice."""
    eye = torch.eye(n, dtype=torch.float64)

    def signs(axes: Sequence[int]) -> Tensor:
        return torch.diag(torch.tensor([-1.0 if i in axes else 1.0 for i in range(n)]).double())

    for axis in range(n):
        yield f"reflection of axis {axis}", signs([axis])
    yield "parity", -eye
    for size in range(2, n) if n <= _LARGEST_PLANES else ():
        for axes in combinations(range(n), size):
            yield f"reflection of axes {', '.join(map(str, axes))}", signs(axes)
    pairs = list(combinations(range(n), 2))
    for i, j in pairs if n <= _LARGEST_PAIRS else [(i, i + 1) for i in range(n - 1)]:
        yield f"swap of axes {i} and {j}", _permuted(n, i, j)
    if n > 2:
        yield "cycle of all axes", eye.roll(1, dims=0)
    for (i, j), k in product(pairs if n <= _LARGEST_PLANES else [], _ORDERS):
        yield f"rotation of axes {i}, {j} by 1/{k} turn", _turned(n, i, j, 2 * math.pi / k)
    for size in (m for m in range(2, n) if n % m == 0):
        blocks = torch.eye(n // size, dtype=torch.float64)
        for axis in range(size):
            mirror = torch.eye(size, dtype=torch.float64)
            mirror[axis, axis] = -1.0
            name = f"reflection of coordinate {axis} of each {size}-vector"
            yield name, torch.kron(blocks, mirror)
        for block in range(n // size - 1):
            exchange = torch.kron(
                _permuted(n // size, block, block + 1), torch.eye(size, dtype=torch.float64)
            )
            yield f"swap of {size}-vectors {block} and {block + 1}", exchange


def _permuted(n: int, i: int, j: int) -> Tensor:
    order = list(range(n))
    order[i], order[j] = j, i
    return torch.eye(n, dtype=torch.float64)[order]


def _turned(n: int, i: int, j: int, angle: float) -> Tensor:
    matrix = torch.eye(n, dtype=torch.float64)
    matrix[i, i] = matrix[j, j] = math.cos(angle)
    matrix[j, i], matrix[i, j] = math.sin(angle), -math.sin(angle)
    return matrix


def _point_swaps(action: Action, x: Batch) -> Iterator[Candidate]:
    """Swaps of neighbouring points, which generate all permutations, where samples are points."""
    if not isinstance(x, Tensor) or x.ndim != 3:
        return
    points = x.shape[1]
    for i in range(min(points, _LARGEST_PAIRS) - 1):
        order = list(range(points))
        order[i], order[i + 1] = i + 1, i
        eye = torch.eye(action.dim, dtype=torch.float64)
        yield Candidate(f"swap of points {i} and {i + 1}", eye, tuple(order))


def _frame(action: Action, x: Batch) -> Float[Tensor, "d d"]:
    """Coordinates in which affine samples have mean 0 and size 1; others stay as they are."""
    frame = torch.eye(action.dim, dtype=torch.float64)
    if isinstance(action, AffineAction) and isinstance(x, Tensor):
        points = x.flatten(0, -2).double().cpu()
        frame[:-1, -1] = points.mean(0)
        frame[:-1, :-1] *= points.std(0).square().mean().sqrt().clamp_min(1e-12)
    return frame


def _in_frame(
    generators: Float[Tensor, "c d d"] | None, frame: Float[Tensor, "d d"]
) -> Float[Tensor, "c d d"]:
    if generators is None:
        return frame.new_zeros(0, *frame.shape)
    return torch.linalg.inv(frame) @ generators.detach().cpu().double() @ frame


# -- what is new besides the identity component ----------------------------------------------------


def _cosets(
    candidates: Sequence[Candidate],
    span: Float[Tensor, "c d d"],
    frame: Float[Tensor, "d d"],
    seed: int,
) -> tuple[list[list[Candidate]], list[str], list[str]]:
    """Candidates that differ by the identity component together; those in it; impossible ones."""
    if not len(span) or not candidates:
        return [[candidate] for candidate in candidates], [], []
    matrices = (
        torch.linalg.inv(frame) @ torch.stack([c.matrix.double() for c in candidates]) @ frame
    )
    inside = reached(matrices, span, seed=seed).tolist()
    contained: list[str] = []
    impossible: list[str] = []
    leaders: list[Tensor] = []
    cosets: list[list[Candidate]] = []
    swaps = [[candidate] for candidate in candidates if candidate.order is not None]
    for candidate, matrix, reachable in zip(candidates, matrices, inside, strict=True):
        if candidate.order is not None:
            continue
        if reachable:
            contained.append(candidate.name)
        elif not _keeps(matrix, span):
            impossible.append(candidate.name)
        else:
            apart = [torch.linalg.solve(leader, matrix) for leader in leaders]
            same = reached(torch.stack(apart), span, seed=seed).tolist() if apart else []
            if True in same:
                cosets[same.index(True)].append(candidate)
            else:
                cosets.append([candidate])
                leaders.append(matrix)
    return cosets + swaps, contained, impossible


def _keeps(matrix: Float[Tensor, "d d"], span: Float[Tensor, "c d d"]) -> bool:
    """Whether R L R⁻¹ stays in the span, as it does for every component of a group."""
    turned = matrix @ span @ torch.linalg.inv(matrix)
    return float(principal_cosines(turned, span).min()) > _SAME_SPAN


def reached(
    matrices: Float[Tensor, "m d d"], span: Float[Tensor, "c d d"], *, seed: int = 0
) -> Bool[Tensor, " m"]:
    """Which matrices the connected group of some generators contains, to the noise of learning.

    From several elements of the group, steps towards the matrix are taken along the generators;
    a matrix is reached if the nearest that any of them comes is near.

    Examples
    --------
    >>> from lieaugmenter.lie import catalogue
    >>> half_turn, mirror = -torch.eye(2), torch.diag(torch.tensor([1.0, -1.0]))
    >>> reached(torch.stack([half_turn, mirror]), catalogue.so(2))
    tensor([ True, False])
    """
    found = torch.zeros(len(matrices), dtype=torch.bool)
    # What changes orientation is not connected to the identity.
    open_ = torch.nonzero(torch.linalg.det(matrices.double()) > 0).flatten()
    c = len(span)
    span = span.double() / torch.linalg.matrix_norm(span.double(), ord=2)[:, None, None]
    rng = torch.Generator().manual_seed(seed)
    starts = torch.randn(_STARTS, c, generator=rng, dtype=torch.float64)
    starts[0] = 0.0
    element = torch.linalg.matrix_exp(torch.einsum("sc,cij->sij", starts, span))
    element = element.expand(len(open_), -1, -1, -1)
    for _ in range(_STEPS):
        if not len(open_):
            break
        gap = matrices[open_].double().unsqueeze(1) - element
        near = gap.flatten(2).norm(dim=2).amin(1) < _NEAR
        found[open_[near]] = True
        open_, element, gap = open_[~near], element[~near], gap[~near]
        tangents = (element.unsqueeze(2) @ span).flatten(3)
        normal = tangents @ tangents.mT + 1e-6 * torch.eye(c, dtype=torch.float64)
        step = torch.linalg.solve(normal, tangents @ gap.flatten(2).unsqueeze(-1)).squeeze(-1)
        # Far away the linear step overshoots.
        step = step / step.norm(dim=2, keepdim=True).clamp_min(1.0)
        element = element @ torch.linalg.matrix_exp(torch.einsum("msc,cij->msij", step, span))
    return found


# -- the evidence ----------------------------------------------------------------------------------


def outcome_of(
    defect: float, lower: float, upper: float, agreement: float, bound: float = DEFECT_BOUND
) -> str:
    """What the numbers of a `Component` say about a candidate that can be judged."""
    if lower > bound and agreement > _LEAST_AGREEMENT:
        return ABSENT
    # Far below zero the residuals have opposite signs, which a symmetry does not give either.
    return PRESENT if upper < bound and defect > -bound else UNCLEAR


class _Judge:
    """Measures candidates on one set of samples."""

    def __init__(
        self,
        first: Callable[[Batch], Tensor],
        second: Callable[[Batch], Tensor],
        x: Batch,
        action: Action,
        output: Action,
        bound: float,
        seed: int,
    ) -> None:
        self.models = (first, second)
        self.x, self.action, self.output, self.bound = x, action, output, bound
        self.values = [_values(model, x) for model in self.models]
        self.spread = action.spread(x)
        self.projection = _projection(action.moving(x).shape[1], seed)
        self.positions = self.place(x)
        self.distances = torch.cdist(self.positions, self.positions)
        self.distances.fill_diagonal_(torch.inf)
        self.region = _Region(self.positions)
        self.equations = equations_of(x, action)
        n = len(self.positions)
        self.weights = resample(n, seed)
        one, two = (value - value.mean(0) for value in self.flat_values())
        shared = (one * two).sum(1)
        # Whether the predictors surely have anything in common.
        self.agree = float(bounds(self.weights @ shared)[0]) > 0

    def place(self, x: Batch) -> Float[Tensor, "n k"]:
        """Where samples are, in units of the spread of each coordinate: distances are in these."""
        positions = self.action.moving(self.action.in_spreads(x, self.spread)).double().cpu()
        return positions if self.projection is None else positions @ self.projection

    def moves(self, candidate: Candidate) -> bool:
        """Whether a candidate moves any sample."""
        moved = self.place(self.moved(candidate, self.x, self.action))
        size = (self.positions - self.positions.mean(0)).norm()
        return float((moved - self.positions).norm()) > _IDLE * float(size)

    def keeps(self, image: Batch) -> bool:
        """Whether moved samples fulfil the equations that the samples do."""
        broken = self.equations(image).square().mean(0)
        return not len(broken) or float(broken.max().sqrt()) <= _MOST_BROKEN

    def flat_values(self) -> list[Tensor]:
        return [value.flatten(1).double().cpu() for value in self.values]

    def component(self, coset: Sequence[Candidate]) -> Component:
        """The first of a coset that can be judged; the first if none can."""
        images = [self.moved(candidate, self.x, self.action) for candidate in coset]
        reaches = [self.region.reach(self.place(image)) for image in images]
        inside = [
            spread <= _LARGEST_SPREAD and coverage >= _LEAST_COVERAGE and self.keeps(image)
            for image, (spread, coverage) in zip(images, reaches, strict=True)
        ]
        chosen = inside.index(True) if True in inside else 0
        measured = self.defect(coset[chosen], images[chosen])
        judged = inside[chosen] and self.agree
        outcome = outcome_of(*measured, bound=self.bound) if judged else UNJUDGED
        alike = [other.name for other in coset if other is not coset[chosen]]
        return Component(coset[chosen], alike, outcome, *measured, *reaches[chosen])

    def defect(self, candidate: Candidate, moved: Batch) -> tuple[float, float, float, float]:
        """The defect with its bounds, and the agreement of both residuals."""
        one, two = (
            (_values(model, moved) - self.moved(candidate, value, self.output)).flatten(1)
            for model, value in zip(self.models, self.values, strict=True)
        )
        one, two = one.double().cpu(), two.double().cpu()
        residual = (one * two).sum(1)
        agreement = float(residual.sum() / (one.norm() * two.norm()).clamp_min(1e-30))
        path = (self.place(moved) - self.positions).norm(dim=1)
        partner, shorter = partners(self.distances, path)
        first, second = ((value[partner] - value) for value in self.flat_values())
        reference = (first * second).sum(1) * shorter
        ratios = (self.weights @ residual) / (self.weights @ reference).clamp_min(1e-30)
        whole = residual.mean() / reference.mean().clamp_min(1e-30)
        defect, lower, upper = signed_root(torch.stack([whole, *bounds(ratios)])).tolist()
        return defect, lower, upper, agreement

    @staticmethod
    def moved(candidate: Candidate, x: Batch, action: Action) -> Batch:
        """R·x, or a permutation of the points of x; values that do not move stay."""
        if isinstance(action, InvariantAction):
            return x
        if candidate.order is not None:
            # Of two vectors that describe five points, a permutation of the points says nothing.
            of_points = x.ndim == 3 and x.shape[1] == len(candidate.order)
            return x[:, list(candidate.order)] if of_points else x
        n = batch_size(x)
        first = action.moving(x)
        matrix = candidate.matrix.to(dtype=first.dtype, device=first.device)
        index = torch.zeros(n, 1, dtype=torch.long, device=first.device)
        still = first.new_zeros(n, 1, 1)
        elements = Elements(
            still, torch.zeros_like(matrix)[None], components=matrix[None], component_index=index
        )
        return map_tensors(lambda t: t.squeeze(1), action.act(elements, x))


def _projection(size: int, seed: int) -> Float[Tensor, "size k"] | None:
    """Random directions that keep distances between large samples, such as images; None if small.

    >>> _projection(10, seed=0) is None, _projection(2000, seed=0).shape
    (True, torch.Size([2000, 256]))
    """
    if size <= _LARGEST_SPACE:
        return None
    rng = torch.Generator().manual_seed(seed)
    directions = torch.randn(size, _LARGEST_SPACE, generator=rng, dtype=torch.float64)
    return directions / math.sqrt(_LARGEST_SPACE)


class _Region:
    """Where the samples are: half of them say it, the others show how far samples stray."""

    def __init__(self, positions: Float[Tensor, "n k"]) -> None:
        self.known, others = positions[::2], positions[1::2]
        self.mean = self.known.mean(0)
        centred = self.known - self.mean
        covariance = centred.mT @ centred / len(self.known)
        sizes, axes = torch.linalg.eigh(covariance)
        self.whitening = axes / (sizes + 1e-6 * sizes[-1].clamp_min(1e-30)).sqrt()
        self.usual_spread = self.spread(others)
        self.usual_distance = self.nearest(others).quantile(0.95)

    def spread(self, positions: Float[Tensor, "n k"]) -> float:
        """Root mean square distance from the mean along the worst direction."""
        white = (positions - self.mean) @ self.whitening
        return float(torch.linalg.matrix_norm(white, ord=2)) / math.sqrt(len(white))

    def nearest(self, positions: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        return torch.cdist(positions, self.known).amin(1)

    def reach(self, moved: Float[Tensor, "n k"]) -> tuple[float, float]:
        """How much further moved samples spread, and which share of them has samples nearby."""
        # Those whose own places are not among the known ones.
        moved = moved[1::2]
        coverage = (self.nearest(moved) <= self.usual_distance * (1 + 1e-9)).double().mean()
        return self.spread(moved) / max(self.usual_spread, 1e-30), float(coverage)


def _values(model: Callable[[Batch], Tensor], x: Batch) -> Tensor:
    """Predictions piece by piece; one number a sample becomes a column."""
    n = batch_size(x)
    pieces = [
        model(map_tensors(lambda t, at=start: t[at : at + _AT_ONCE], x)).detach()
        for start in range(0, n, _AT_ONCE)
    ]
    values = torch.cat(pieces)
    return values.unsqueeze(1) if values.ndim == 1 else values


def _group_name(
    identity: str | None,
    span: Float[Tensor, "c d d"],
    frame: Float[Tensor, "d d"],
    found: Sequence[Component],
    n: int,
) -> str:
    present = [c.candidate for c in found if c.outcome == PRESENT]
    linear = [candidate for candidate in present if candidate.order is None]
    swaps = [candidate.name for candidate in present if candidate.order is not None]
    if not len(span):
        blocks = [candidate.matrix[:n, :n].double() for candidate in linear]
        names = [_finite_name(torch.stack(blocks)) if blocks else "trivial"]
    elif identity in (f"so({n})", f"se({n})"):
        whole, half = ("O", "SO") if identity.startswith("so") else ("E", "SE")
        mirrors = any(_determinant(candidate.matrix) < 0 for candidate in linear)
        names = [f"{whole if mirrors else half}({n})"]
    elif identity == f"so(1,{n - 1})":
        names = [_lorentz_name(linear, n)]
    else:
        inverse = torch.linalg.inv(frame)
        matrices = [inverse @ candidate.matrix.double() @ frame for candidate in linear]
        needed = _independent(matrices, span)
        if identity is None and not needed and not swaps:
            # Their number is no name.
            return ""
        number = "1 generator" if len(span) == 1 else f"{len(span)} generators"
        group = _of_the_group(identity or number)
        mirrors = [i for i in needed if group.startswith("SO(") and _mirrors(matrices[i], span)]
        if mirrors:
            group, needed = group[1:], [i for i in needed if i != mirrors[0]]
        names = [group, *(linear[i].name for i in needed)]
    first, *others = [*names, *swaps]
    name = f"{first} with {', '.join(others)}" if others else first
    open_ = any(c.outcome in (UNCLEAR, UNJUDGED) for c in found)
    return f"at least {name}" if open_ and name != "trivial" else name


def _of_the_group(algebra: str) -> str:
    """Capitals for what is usually written with capitals.

    >>> _of_the_group("so(2)"), _of_the_group("so(2) ⊕ scaling")
    ('SO(2)', 'so(2) ⊕ scaling')
    """
    return algebra.upper() if re.fullmatch(r"s[oel]\(\d+\)", algebra) else algebra


def _mirrors(matrix: Float[Tensor, "d d"], span: Float[Tensor, "c d d"]) -> bool:
    """Whether a matrix reflects what generators turn, and leaves alone what they leave alone."""
    _, sizes, directions = torch.linalg.svd(span.flatten(0, 1))
    still = directions[(sizes > _NEAR * sizes[0]).sum() :]
    changed = still @ (matrix - torch.eye(len(matrix), dtype=matrix.dtype)).mT
    return _determinant(matrix) < 0 and float(changed.norm()) < _NEAR


def _lorentz_name(present: Sequence[Candidate], n: int) -> str:
    """O(1, n - 1) has four components: whether it turns orientation, and whether time."""
    kinds = frozenset(
        (_determinant(candidate.matrix) < 0, float(candidate.matrix[0, 0]) < 0)
        for candidate in present
    )
    size = f"(1,{n - 1})"
    names = {
        frozenset(): f"SO⁺{size}",
        frozenset({(True, False)}): f"O⁺{size}",
        frozenset({(False, True)}): f"SO{size}",
        frozenset({(True, True)}): f"SO⁺{size} with time reversal",
    }
    return names.get(kinds, f"O{size}")


def _determinant(matrix: Float[Tensor, "d d"]) -> float:
    return float(torch.linalg.det(matrix.double()))


def _independent(matrices: Sequence[Tensor], span: Float[Tensor, "c d d"]) -> list[int]:
    """Which matrices generate the others, together with the identity component."""
    needed: list[int] = []
    elements = [torch.eye(span.shape[-1], dtype=torch.float64)]

    def known(matrix: Tensor) -> bool:
        return bool(reached(torch.linalg.inv(torch.stack(elements)) @ matrix, span).any())

    for i, matrix in enumerate(matrices):
        if known(matrix):
            continue
        needed.append(i)
        # In one order only: at worst a name lists one more than it needs.
        elements += [element @ matrix for element in elements]
    return needed


def _finite_name(matrices: Float[Tensor, "m n n"]) -> str:
    """The group that matrices generate, by a usual name where it has one."""
    elements = _generated(matrices)
    if elements is None:
        return f"a group of more than {_LARGEST_ORDER} elements"
    n, order = matrices.shape[-1], len(elements)
    eye = torch.eye(n, dtype=torch.float64)
    off = (elements - eye).abs().amax(0)
    moved = torch.nonzero(off.amax(0).maximum(off.amax(1)) > 1e-3).flatten().tolist()
    where = f" on axes {', '.join(map(str, moved))}" if len(moved) < n else ""
    if len(moved) == 2:
        turns = bool((torch.linalg.det(elements) > 0).all())
        name = f"C{order}" if turns else f"D{order // 2}"
    elif bool((elements * (1 - eye)).abs().amax() < 1e-3):
        power = round(math.log2(order))
        name = "Z2" if power == 1 else f"Z2^{power}"
    elif bool((elements > -1e-3).all()) and order == math.factorial(len(moved)):
        name = f"S{len(moved)}"
    else:
        name = f"a finite group of {order} elements"
    return name + where


def _generated(matrices: Float[Tensor, "m n n"]) -> Float[Tensor, "k n n"] | None:
    """All products of some matrices; None if there are too many of them."""
    elements = torch.eye(matrices.shape[-1], dtype=matrices.dtype)[None]
    done = 0
    while done < len(elements):
        for combined in elements[done] @ matrices:
            # Matrices may be rounded; different elements of a finite group are not this near.
            if float((elements - combined).flatten(1).norm(dim=1).min()) > 1e-3:
                elements = torch.cat([elements, combined[None]])
        if len(elements) > _LARGEST_ORDER:
            return None
        done += 1
    return elements


def _reasons(
    found: Sequence[Component],
    span: Float[Tensor, "c d d"],
    idle: Sequence[str],
    impossible: Sequence[str],
    agree: bool,
) -> list[str]:
    if not agree:
        return ["The two predictors have nothing in common: the task was not learned."]
    reasons = []
    for outcome, why in (
        (UNCLEAR, "The samples do not decide about"),
        (UNJUDGED, "The predictors were not trained where samples would be after"),
    ):
        names = [c.candidate.name for c in found if c.outcome == outcome]
        if names:
            reasons.append(f"{why}: {_listed(names)}.")
    if idle:
        reasons.append(f"Moves no sample: {_listed(idle)}.")
    if impossible:
        reasons.append(
            f"Not tested, because the continuous symmetry would have to be larger than given: "
            f"{_listed(impossible)}."
        )
    if not len(span):
        reasons.append("No continuous symmetry was given beside these.")
    return reasons


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many others.

    >>> _listed(["a", "b"]), _listed(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e, f and 2 others')
    """
    shown = ", ".join(names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more} others" if more > 0 else shown
