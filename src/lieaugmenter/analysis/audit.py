"""How equivariant a trained model is under a given group: an audit of any model, nothing trained.

The defect of a generator is the root mean square Lie derivative of the model along it, relative to
that along random generators that move the samples equally far: 0 for an exact symmetry, about 1
for an arbitrary direction. It speaks of small transformations; the error at finite coefficients
stands beside it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.actions.linear import InvariantAction
from lieaugmenter.actions.spatial import AffineAction, DisplacementAction
from lieaugmenter.analysis.bench import DEFECT_BOUND
from lieaugmenter.analysis.bootstrap import bounds, resample_in_parts
from lieaugmenter.analysis.equivariance import equivariance_error, lie_derivatives
from lieaugmenter.analysis.polarization import displacement
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.units import in_spreads
from lieaugmenter.nets.mode import evaluating
from lieaugmenter.runs import read_json, read_tensors

COEFFICIENTS = (0.01, 0.03, 0.1, 0.3, 1.0)
# Families of the catalogue that are written in homogeneous coordinates.
_HOMOGENEOUS = ("aff", "se", "translations")
_RANDOM_DIRECTIONS = 16
_RANDOM_CURVES = 4
# Of each end of an interval of 95 %.
_CONFIDENCE = 0.975
_AT_ONCE = 256
# Sums of a few numbers are known to so many units of their last digit.
_ROUNDED = 16.0
_CURVE_SAMPLES = 1000
# A generator that moves samples less than this share of the one that moves them most is idle.
_IDLE = 1e-6
# Another convention explains a defect if under it no more than this share is left.
_EXPLAINED = 1 / 3


@dataclass(frozen=True)
class GeneratorDefect:
    """What was measured along one generator.

    Attributes
    ----------
    name
        What it does, where that is simple; its number otherwise.
    defect
        Relative to random generators; None where that cannot be said.
    lower, upper
        Its 95 % bootstrap interval over samples.
    errors
        At each coefficient w the mean of ‖f(gx) - g f(x)‖₁ for g = exp(wL), relative to the mean of
        ‖f(x) - mean f‖₁. Empty where the outputs do not vary.
    """

    name: str
    defect: float | None
    lower: float | None
    upper: float | None
    errors: list[float]


@dataclass(frozen=True)
class WorstSample:
    """A sample on which the model is far from equivariant.

    Attributes
    ----------
    index
        Of the sample.
    residual
        Root mean square over the generators of its Lie derivative, in the units of the defect.
    """

    index: int
    residual: float


@dataclass(frozen=True)
class Audit:
    """How equivariant a model is, with the evidence.

    Attributes
    ----------
    group
        What it was checked for.
    samples
        On how many samples.
    generators
        One row for each generator.
    coefficients
        Those of `GeneratorDefect.errors`.
    random
        The errors of random generators that move the samples as far.
    worst
        The samples that are furthest from equivariance, worst first.
    hint
        A convention that explains the defect, if one does.
    notes
        What could not be measured, and why.
    """

    group: str
    samples: int
    generators: list[GeneratorDefect]
    coefficients: list[float]
    random: list[float]
    worst: list[WorstSample]
    hint: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def defect(self) -> float | None:
        """The largest defect of a generator; None if none could be measured."""
        measured = [row.defect for row in self.generators if row.defect is not None]
        return max(measured, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"defect": self.defect, **asdict(self)}

    def __str__(self) -> str:
        defect = "not measured" if self.defect is None else f"{self.defect:.3g}"
        width = max(len(name) for name in ["generator", *(row.name for row in self.generators)])
        heads = "".join(f"{f'w = {w:g}':>10}" for w in self.coefficients)
        lines = [
            f"{self.group}, {self.samples} samples: largest defect {defect} "
            f"(0 for equivariance, about 1 for an arbitrary direction)",
            f"  {'generator':<{width}}  {'defect':>7}  {'95 % interval':<16}{heads}",
        ]
        for row in self.generators:
            errors = "".join(f"{error:>10.2g}" for error in row.errors)
            shown, interval = "–", ""
            if row.defect is not None:
                shown, interval = f"{row.defect:.3f}", f"[{row.lower:.3f}, {row.upper:.3f}]"
            lines.append(f"  {row.name:<{width}}  {shown:>7}  {interval:<16}{errors}".rstrip())
        errors = "".join(f"{error:>10.2g}" for error in self.random)
        lines.append(f"  {'random':<{width}}  {'':>7}  {'':<16}{errors}".rstrip())
        if self.worst:
            listed = ", ".join(f"{s.index} ({s.residual:.2g})" for s in self.worst)
            lines.append(f"  worst samples: {listed}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def audit(
    model: Callable[[Batch], Tensor],
    x: Batch,
    *,
    group: str | Path | Float[Tensor, "c d d"],
    action: Action,
    output: Action,
    axes: Sequence[int] | None = None,
    coefficients: Sequence[float] = COEFFICIENTS,
    worst: int = 5,
    seed: int = 0,
) -> Audit:
    """Measure how equivariant a model is under a group.

    Parameters
    ----------
    model
        Maps a batch to a tensor, sample by sample; a module is evaluated in evaluation mode.
    x
        Samples.
    group
        A name such as ``"so(3)"``, generators (c, d, d), a run folder, or a .json with
        ``"generators"``.
    action, output
        How elements move inputs and outputs.
    axes
        The coordinates that a named group moves, all unless given. A multiple of what it needs
        stands for several vectors that move alike: ``"so(2)"`` with axes 0, 1, 2, 3 turns both
        planes.
    coefficients
        At which the error of finite transformations is measured.
    worst
        How many of the worst samples to list.
    seed
        Of the random generators and the bootstrap.

    Raises
    ------
    ValueError
        For what cannot be measured: samples or generators that do not fit the action, a model that
        fails, or whose outputs or derivatives are not finite on some samples.

    Examples
    --------
    The first coordinate is invariant under the rotation of the two others only:

    >>> from lieaugmenter.actions import VectorAction
    >>> def first(x):
    ...     return x[:, :1].sin()
    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> found = audit(
    ...     first, x, group="so(3)", action=VectorAction(3), output=InvariantAction()
    ... )
    >>> [round(row.defect) for row in found.generators]
    [1, 1, 0]
    """
    action.check(x)
    if not all(bool(t.isfinite().all()) for t in tensors_of(x) if t.is_floating_point()):
        raise ValueError("x has non-finite values; drop or impute those samples")
    if batch_size(x) < 2:
        raise ValueError(f"x has {batch_size(x)} samples; an audit needs at least 2")
    name, generators = generators_of(group, action, axes)
    generators = generators.to(tensors_of(x)[0])
    with _asked(model):
        checked = _checked(model, x, output)
        _refuse_non_finite_outputs(checked, x)
        measured = _measure(checked, x, generators, action, output, seed)
        _refuse_non_finite_derivatives(measured)
        errors, random_errors = _curves(checked, x, measured, action, output, coefficients, seed)
        rows = _rows(measured, errors, action.rows, seed)
        defect = max([row.defect for row in rows if row.defect is not None], default=0.0)
        hint = _hint(checked, x, measured, action, output, defect, seed)
    return Audit(
        group=name,
        samples=batch_size(x),
        generators=rows,
        coefficients=list(coefficients),
        random=random_errors,
        worst=_worst(measured, worst),
        hint=hint,
        notes=_notes(rows, measured, random_errors),
    )


# -- which group -----------------------------------------------------------------------------------


def generators_of(
    group: str | Path | Float[Tensor, "c d d"],
    action: Action,
    axes: Sequence[int] | None = None,
) -> tuple[str, Float[Tensor, "c d d"]]:
    """The name and the generators of a group, in the size that an action needs.

    Parameters
    ----------
    group, axes
        As `audit` takes them.
    action
        The action.

    Examples
    --------
    >>> from lieaugmenter.actions import VectorAction
    >>> generators_of("so(2)", VectorAction(3), axes=[0, 2])[1][0]
    tensor([[ 0.,  0., -1.],
            [ 0.,  0.,  0.],
            [ 1.,  0.,  0.]])
    """
    if isinstance(group, Tensor):
        name, generators = "the given generators", group
    elif Path(group).is_dir() or Path(group).suffix == ".json":
        name, generators = f"the generators of {group}", _learned(Path(group))
    else:
        return _named(str(group), action, axes)
    if axes is not None:
        raise ValueError("axes are for named groups; the given generators say what they move")
    return name, _fitting(name, generators, action)


def _learned(path: Path) -> Tensor:
    if path.is_dir():
        tensors, _ = read_tensors(path / "basis.safetensors")
        found = tensors.get("generators")
    else:
        content = read_json(path)
        found = content.get("generators") if isinstance(content, dict) else None
    if found is None:
        raise ValueError(f"{path} holds no generators")
    try:
        return torch.as_tensor(found, dtype=torch.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{path}: generators must be numbers of shape (c, d, d)") from None


def _fitting(name: str, generators: Tensor, action: Action) -> Tensor:
    """Generators as they are, if they fit the action."""
    d = action.dim
    if generators.ndim != 3 or tuple(generators.shape[1:]) != (d, d) or not len(generators):
        raise ValueError(
            f"{name}: generators of shape {tuple(generators.shape)} do not fit {action}, which "
            f"needs (c, {d}, {d})"
        )
    if not bool(generators.isfinite().all()):
        raise ValueError(f"{name} hold values that are not finite")
    if bool((generators * (1 - action.mask.to(generators))).abs().amax() > 0):
        raise ValueError(
            f"{name} have entries below row {action.rows}, which {action} does not have: "
            f"points move as A p + b with b in the last column. Are they transposed?"
        )
    return generators


def _named(name: str, action: Action, axes: Sequence[int] | None) -> tuple[str, Tensor]:
    basis = catalogue.named(name)
    translates = name.strip().lower().startswith(_HOMOGENEOUS)
    if translates and action.rows == action.dim:
        raise ValueError(
            f"{name} translates points, which {action} does not: use action 'affine' for points "
            f"or 'image' for images"
        )
    needed, space = basis.shape[-1] - translates, action.rows
    chosen = list(range(space)) if axes is None else list(axes)
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(space)):
        raise ValueError(f"axes {chosen}: give different ones of 0 to {space - 1}")
    alike = axes is not None and not translates and len(chosen) % needed == 0
    if len(chosen) != needed and not (alike and chosen):
        given = f"samples have {space} (is the target among them?)"
        if axes is not None:
            given = f"{len(chosen)} axes are given"
        raise ValueError(
            f"{name} moves {needed} coordinates, but {given}. Say with axes which coordinates it "
            f"moves; several times {needed} of them for vectors that move alike"
        )
    if not translates:
        basis = catalogue.diagonal(basis, len(chosen) // needed)
    index = torch.tensor([*chosen, action.dim - 1] if translates else chosen)
    placed = torch.zeros(len(basis), action.dim, action.dim)
    placed[:, index[:, None], index] = basis
    where = "" if axes is None else f" on axes {', '.join(map(str, chosen))}"
    return f"{name.strip()}{where}", placed


# -- measuring -------------------------------------------------------------------------------------


def _checked(
    model: Callable[[Batch], Tensor], x: Batch, output: Action
) -> Callable[[Batch], Tensor]:
    """The model with a column where it gives one number a sample; an error if it gives no tensor.

    Tried once, on two samples: later an error may be a derivative that a layer does not have.
    """
    few = map_tensors(lambda t: t[:2], x)
    try:
        with torch.no_grad():
            values = model(few)
    except (RuntimeError, TypeError, ValueError, AssertionError, IndexError) as error:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors_of(few))
        words = str(error).strip().splitlines() or [type(error).__name__]
        # The cause of what TorchScript reports stands last.
        raise ValueError(
            f"the model cannot be called on two samples, of shape {shapes}: {words[-1]}"
        ) from error
    if not isinstance(values, Tensor):
        size = f" of {len(values)}" if isinstance(values, tuple | list | dict) else ""
        raise ValueError(
            f"model(x) returned a {type(values).__name__}{size}; give a model that returns one "
            f"tensor, such as lambda x: model(x)[0]"
        )
    if not values.is_floating_point() or not values.ndim or len(values) != 2:
        raise ValueError(
            f"model(x) returned {values.dtype} of shape {tuple(values.shape)} for 2 samples; one "
            f"row of real numbers for each is needed"
        )
    if values.ndim > 1:
        output.check(values, "the model's output")
        return model
    output.check(values.unsqueeze(1), "the model's output")
    return lambda batch: model(batch).unsqueeze(1)


@contextmanager
def _asked(model: Callable[[Batch], Tensor]) -> Iterator[None]:
    """Evaluation mode for as long as it lasts, and an error that says what failed."""
    try:
        with evaluating(model):
            yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"the model fails on some batches: {words[-1]}. It must take any number of samples"
        ) from error


def _refuse_non_finite_outputs(model: Callable[[Batch], Tensor], x: Batch) -> None:
    with torch.no_grad():
        finite = [model(piece).flatten(1).isfinite().all(1) for piece in _pieces(x)]
    _refuse_unless(torch.cat(finite), "the model's outputs are")


def _refuse_non_finite_derivatives(measured: _Measured) -> None:
    squares = torch.cat([measured.residuals, measured.random_residuals], dim=1)
    _refuse_unless(squares.isfinite().all(1), "the model's derivatives are")


def _refuse_unless(finite: Bool[Tensor, " n"], what: str) -> None:
    if not bool(finite.all()):
        raise ValueError(
            f"{what} not finite (NaN or inf) on {int((~finite).sum())} of {len(finite)} samples; "
            f"first sample {int((~finite).int().argmax())}, counted from 0. Repair the model, or "
            f"leave those samples out"
        )


@dataclass(frozen=True, eq=False)
class _Measured:
    """Squares of each sample: of residuals, and of how far it is moved; along random ones too."""

    generators: Float[Tensor, "c d d"]
    random: Float[Tensor, "m d d"]
    residuals: Float[Tensor, "n c"]
    paths: Float[Tensor, "n c"]
    random_residuals: Float[Tensor, "n m"]
    random_paths: Float[Tensor, "n m"]

    @property
    def active(self) -> list[bool]:
        """Which generators move the samples at all."""
        paths = self.paths.mean(0).sqrt()
        largest = max(float(paths.max()), float(self.random_paths.mean().sqrt()))
        return (paths > _IDLE * largest).tolist()

    @property
    def reference(self) -> float:
        """Mean square residual of random generators at a mean square displacement of 1."""
        moved = self.random_paths.mean(0).clamp_min(1e-30)
        return float((self.random_residuals.mean(0) / moved).mean())


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _measure(
    model: Callable[[Batch], Tensor],
    x: Batch,
    generators: Float[Tensor, "c d d"],
    action: Action,
    output: Action,
    seed: int,
    moves_output: Callable[[Tensor], Tensor] = _as_it_is,
) -> _Measured:
    rng = torch.Generator().manual_seed(seed)
    random = torch.randn(_RANDOM_DIRECTIONS, *generators.shape[1:], generator=rng)
    # As likely along every coordinate, in units of its spread.
    random = in_spreads((random * action.mask).to(generators), 1 / action.spread(x))
    along = [*generators, *random]
    residuals, paths = _squares(model, x, along, action, output, moves_output)
    c = len(generators)
    return _Measured(
        generators, random, residuals[:, :c], paths[:, :c], residuals[:, c:], paths[:, c:]
    )


def _squares(
    model: Callable[[Batch], Tensor],
    x: Batch,
    generators: Sequence[Tensor],
    action: Action,
    output: Action,
    moves_output: Callable[[Tensor], Tensor] = _as_it_is,
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """‖J_f(x)·(Lx) - L'f(x)‖² and ‖Lx‖² of each sample and L, with L' = L unless told.

    ‖Lx‖ is in units of the spread of each coordinate.
    """
    spread = action.spread(x)
    residuals, paths = [], []
    for piece in _pieces(x):
        with torch.no_grad():
            values = model(piece)
        along, still = [], InvariantAction()
        changes = lie_derivatives(model, piece, generators, action=action, output=still)
        for generator, pushed in zip(generators, changes, strict=True):
            turned = output.differential(moves_output(generator), values).flatten(1)
            along.append(_unlike(pushed, turned))
        residuals.append(torch.stack(along, dim=1))
        moved = [displacement(generator, piece, action, spread) for generator in generators]
        paths.append(torch.stack([m.double().square().sum(1) for m in moved], dim=1))
    return torch.cat(residuals).cpu(), torch.cat(paths).cpu()


def _unlike(a: Float[Tensor, "n k"], b: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Squared distances of rows; 0 where they are no farther apart than rounding leaves them."""
    apart = (a - b).double().square().sum(1)
    size = a.double().square().sum(1) + b.double().square().sum(1)
    return torch.where(apart <= (_ROUNDED * torch.finfo(a.dtype).eps) ** 2 * size, 0.0, apart)


def _pieces(x: Batch) -> Iterator[Batch]:
    for start in range(0, batch_size(x), _AT_ONCE):
        yield map_tensors(lambda t, at=start: t[at : at + _AT_ONCE], x)


def _rows(
    measured: _Measured, errors: list[list[float]], rows: int, seed: int
) -> list[GeneratorDefect]:
    """Defects with their bootstrap intervals."""
    n = len(measured.residuals)
    parts = [_defects(measured, weights) for weights in resample_in_parts(n, seed)]
    lowest, highest = bounds(torch.cat(parts), _CONFIDENCE)
    (whole,) = _defects(measured, torch.full((1, n), 1 / n, dtype=torch.float64))
    known = measured.reference > 0
    found = []
    for i, (generator, active) in enumerate(zip(measured.generators, measured.active, strict=True)):
        values = [float(whole[i]), float(lowest[i]), float(highest[i])]
        defect, lower, upper = values if active and known else (None, None, None)
        name = _name_of(generator, i + 1, rows)
        found.append(GeneratorDefect(name, defect, lower, upper, errors[i]))
    return found


def _defects(measured: _Measured, weights: Float[Tensor, "r n"]) -> Float[Tensor, "r c"]:
    along = (weights @ measured.residuals) / (weights @ measured.paths).clamp_min(1e-30)
    moved = (weights @ measured.random_paths).clamp_min(1e-30)
    elsewhere = ((weights @ measured.random_residuals) / moved).mean(1, keepdim=True)
    return (along / elsewhere.clamp_min(1e-30)).sqrt()


def _curves(
    model: Callable[[Batch], Tensor],
    x: Batch,
    measured: _Measured,
    action: Action,
    output: Action,
    coefficients: Sequence[float],
    seed: int,
) -> tuple[list[list[float]], list[float]]:
    """Errors at finite coefficients: of each generator, and of random ones that move as far."""
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(batch_size(x), generator=rng)[:_CURVE_SAMPLES]
    x = map_tensors(lambda t: t[chosen.to(t.device)], x)
    with torch.no_grad():
        values = torch.cat([model(piece) for piece in _pieces(x)])
    spread = float((values - values.mean(0)).flatten(1).abs().sum(1).mean())

    def errors(generator: Tensor) -> list[float]:
        return [_error(w, generator) / spread for w in coefficients if spread > 0]

    def _error(w: float, generator: Tensor) -> float:
        total = 0.0
        for piece in _pieces(x):
            n = batch_size(piece)
            elements = Elements(generator.new_full((n, 1, 1), w), generator[None])
            gap = equivariance_error(model, piece, elements, action=action, output=output)
            total += gap * n / batch_size(x)
        return total

    path = measured.paths.mean().sqrt()
    lengths = path / measured.random_paths.mean(0).sqrt().clamp_min(1e-30)
    random = [
        errors(generator * float(length))
        for generator, length in zip(measured.random[:_RANDOM_CURVES], lengths, strict=False)
    ]
    return [errors(g) for g in measured.generators], [
        sum(column) / len(column) for column in zip(*random, strict=True)
    ]


def _worst(measured: _Measured, count: int) -> list[WorstSample]:
    active = torch.tensor(measured.active)
    if not bool(active.any()) or not measured.reference > 0:
        return []
    scales = measured.paths.mean(0)[active]
    sizes = (measured.residuals[:, active] / scales).mean(1).div(measured.reference).sqrt()
    order = sizes.argsort(descending=True)[: max(count, 0)].tolist()
    return [WorstSample(i, float(sizes[i])) for i in order if sizes[i] > 0]


def _name_of(generator: Float[Tensor, "d d"], number: int, rows: int) -> str:
    """What a generator with one or two entries does; the number of any other."""
    d = len(generator)
    entries = [(i, j) for i, j in torch.nonzero(generator).tolist()]
    if len(entries) == 1 and rows < d and entries[0][1] == d - 1:
        return f"translation along axis {entries[0][0]}"
    if len(entries) == 1 and entries[0][0] == entries[0][1]:
        return f"scaling of axis {entries[0][0]}"
    if len(entries) == 2 and entries[0] == entries[1][::-1]:
        i, j = entries[0]
        kind = {-1.0: "rotation", 1.0: "boost"}.get(float(generator[i, j] / generator[j, i]))
        if kind:
            return f"{kind} of axes {i}, {j}"
    return f"L{number}"


def _notes(
    rows: Sequence[GeneratorDefect], measured: _Measured, random_errors: Sequence[float]
) -> list[str]:
    if not measured.reference > 0:
        return ["The model changes along no direction at all, so there is nothing to compare with."]
    notes = []
    idle = [row.name for row in rows if row.defect is None]
    if idle:
        notes.append(f"Not measured, because no sample is moved by it: {', '.join(idle)}.")
    errors = itertools.chain(random_errors, *(row.errors for row in rows))
    if not all(math.isfinite(error) for error in errors):
        notes.append("Where an error is nan or inf, the model's outputs on moved samples are so.")
    return notes


# -- conventions -----------------------------------------------------------------------------------


def _hint(
    model: Callable[[Batch], Tensor],
    x: Batch,
    measured: _Measured,
    action: Action,
    output: Action,
    defect: float,
    seed: int,
) -> str | None:
    """Words for the convention under which most of the defect goes away, if there is one."""
    if not (defect > DEFECT_BOUND and measured.reference > 0):
        return None
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(batch_size(x), generator=rng)[:_CURVE_SAMPLES]
    few = map_tensors(lambda t: t[chosen.to(t.device)], x)
    found = [
        (convention.left(few, action, measured), convention)
        for convention in _conventions(model, few, measured, action, output)
    ]
    left, best = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    if best is None or left > _EXPLAINED * defect:
        return None
    then = best.defect(x, action, seed)
    if then > _EXPLAINED * defect:
        return None
    return f"{best.words}: the largest defect is then {then:.2g} instead of {defect:.2g}."


@dataclass(frozen=True, eq=False)
class _Convention:
    """Another convention: words for it, and what is to be measured where it holds.

    `moves_output` makes of a generator the one that moves outputs, `of_samples` of samples those
    that the model takes.
    """

    words: str
    model: Callable[[Batch], Tensor]
    generators: Float[Tensor, "c d d"]
    output: Action
    moves_output: Callable[[Tensor], Tensor] = _as_it_is
    of_samples: Callable[[Batch], Batch] = _as_it_is

    def left(self, x: Batch, action: Action, measured: _Measured) -> float:
        """What is left of the largest defect, in units of what was measured: to choose by."""
        residuals, paths = _squares(
            self.model,
            self.of_samples(x),
            [*self.generators],
            action,
            self.output,
            self.moves_output,
        )
        return _largest(residuals, paths, measured.active, measured.reference)

    def defect(self, x: Batch, action: Action, seed: int) -> float:
        """What an audit that follows the hint will say.

        It compares with random generators that move outputs in the other way, too.
        """
        found = _measure(
            self.model,
            self.of_samples(x),
            self.generators,
            action,
            self.output,
            seed,
            self.moves_output,
        )
        return _largest(found.residuals, found.paths, found.active, found.reference)


def _largest(residuals: Tensor, paths: Tensor, active: list[bool], reference: float) -> float:
    """The largest defect of the generators that move samples; infinite where it is no number.

    Where the inputs are turned round, the model may give anything.
    """
    squares = (residuals.mean(0) / paths.mean(0).clamp_min(1e-30))[torch.tensor(active)]
    if not reference > 0:
        # What is equivariant under everything is so under these.
        return math.inf if bool(squares.any()) else 0.0
    largest = math.sqrt(float(squares.max()) / reference)
    return math.inf if math.isnan(largest) else largest


def _conventions(
    model: Callable[[Batch], Tensor],
    x: Batch,
    measured: _Measured,
    action: Action,
    output: Action,
) -> Iterator[_Convention]:
    """The usual other conventions that apply; of two that explain as much the first is told."""
    generators, mask = measured.generators, action.mask.to(measured.generators)
    tried = [generators]

    def is_new(changed: Tensor) -> bool:
        fits = not bool((changed * (1 - mask)).any())
        new = fits and not any(torch.allclose(changed, other) for other in tried)
        if new:
            tried.append(changed)
        return new

    if not isinstance(output, InvariantAction):
        for words, change in _OUTPUT_CONVENTIONS:
            if is_new(torch.stack([change(generator) for generator in generators])):
                yield _Convention(words, model, generators, output, moves_output=change)
    transposed = generators.mT
    mirrored = any(torch.allclose(transposed, sign * generators) for sign in (1, -1))
    if not mirrored and not bool((transposed * (1 - mask)).any()):
        words = (
            "the model respects the transposed generators: matrices act on columns here, g x, and "
            "the generators seem to be written for rows, x g"
        )
        yield _Convention(words, model, transposed, output)
    few = map_tensors(lambda t: t[:2], x)
    shape = model(few).shape
    points = isinstance(action, AffineAction) and shape[-1] == action.space_dim
    if points and not isinstance(output, DisplacementAction):
        words = "the model's outputs turn with its inputs but are not translated: they are 'vector'"
        yield _Convention(words, model, generators, DisplacementAction(action.space_dim))
    if isinstance(output, InvariantAction):
        if isinstance(x, Tensor) and shape == few.shape:
            words = "the model's outputs move with its inputs: they are not invariant but 'same'"
            yield _Convention(words, model, generators, action)
    elif len(shape) == 3 and shape[1] == shape[2]:
        words = (
            "the model's outputs move along their other axis: they are (N, d, n) instead of "
            "(N, n, d)"
        )
        yield _Convention(words, lambda z: model(z).mT, generators, output)
    if isinstance(x, Tensor) and x.ndim == 3 and x.shape[1] == x.shape[2]:
        words = (
            "the model takes the other axis of its inputs for coordinates: (N, d, n) instead of "
            "(N, n, d)"
        )
        yield _Convention(
            words, lambda z: model(z.mT), generators, output, of_samples=lambda x: x.mT
        )


_OUTPUT_CONVENTIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("the model's outputs do not move: they are invariant", torch.zeros_like),
    (
        "the model's outputs move by the transposed element gᵀ where its inputs move by g, as "
        "when one of them is multiplied as x @ R and the other as x @ R.T",
        lambda generator: generator.mT,
    ),
    (
        "the model's outputs move by g⁻ᵀ instead of g, as gradients and covectors do (lower "
        "instead of upper indices)",
        lambda generator: -generator.mT,
    ),
    (
        "the model's outputs move by the inverse element g⁻¹ where its inputs move by g",
        lambda generator: -generator,
    ),
)
