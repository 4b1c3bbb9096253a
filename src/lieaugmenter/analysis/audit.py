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
from lieaugmenter.analysis.bootstrap import bounds, resample_in_parts
from lieaugmenter.analysis.conventions import hint_of
from lieaugmenter.analysis.equivariance import equivariance_error
from lieaugmenter.analysis.groups import generators_of
from lieaugmenter.analysis.residuals import FEW_SAMPLES, Residuals, in_pieces, residuals_of
from lieaugmenter.lie.elements import Elements
from lieaugmenter.nets.mode import evaluating

COEFFICIENTS = (0.01, 0.03, 0.1, 0.3, 1.0)
_RANDOM_CURVES = 4
# Of each end of an interval of 95 %.
_CONFIDENCE = 0.975


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

    >>> from lieaugmenter.actions import InvariantAction, VectorAction
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
        measured = residuals_of(checked, x, generators, action, output, seed)
        _refuse_non_finite_derivatives(measured)
        errors, random_errors = _curves(checked, x, measured, action, output, coefficients, seed)
        rows = _rows(measured, errors, action.rows, seed)
        defect = max([row.defect for row in rows if row.defect is not None], default=0.0)
        hint = hint_of(checked, x, measured, action, output, defect, seed)
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
        finite = [model(piece).flatten(1).isfinite().all(1) for piece in in_pieces(x)]
    _refuse_unless(torch.cat(finite), "the model's outputs are")


def _refuse_non_finite_derivatives(measured: Residuals) -> None:
    squares = torch.cat([measured.residuals, measured.random_residuals], dim=1)
    _refuse_unless(squares.isfinite().all(1), "the model's derivatives are")


def _refuse_unless(finite: Bool[Tensor, " n"], what: str) -> None:
    if not bool(finite.all()):
        raise ValueError(
            f"{what} not finite (NaN or inf) on {int((~finite).sum())} of {len(finite)} samples; "
            f"first sample {int((~finite).int().argmax())}, counted from 0. Repair the model, or "
            f"leave those samples out"
        )


def _rows(
    measured: Residuals, errors: list[list[float]], rows: int, seed: int
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


def _defects(measured: Residuals, weights: Float[Tensor, "r n"]) -> Float[Tensor, "r c"]:
    along = (weights @ measured.residuals) / (weights @ measured.paths).clamp_min(1e-30)
    moved = (weights @ measured.random_paths).clamp_min(1e-30)
    elsewhere = ((weights @ measured.random_residuals) / moved).mean(1, keepdim=True)
    return (along / elsewhere.clamp_min(1e-30)).sqrt()


def _curves(
    model: Callable[[Batch], Tensor],
    x: Batch,
    measured: Residuals,
    action: Action,
    output: Action,
    coefficients: Sequence[float],
    seed: int,
) -> tuple[list[list[float]], list[float]]:
    """Errors at finite coefficients: of each generator, and of random ones that move as far."""
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(batch_size(x), generator=rng)[:FEW_SAMPLES]
    x = map_tensors(lambda t: t[chosen.to(t.device)], x)
    with torch.no_grad():
        values = torch.cat([model(piece) for piece in in_pieces(x)])
    spread = float((values - values.mean(0)).flatten(1).abs().sum(1).mean())

    def errors(generator: Tensor) -> list[float]:
        return [_error(w, generator) / spread for w in coefficients if spread > 0]

    def _error(w: float, generator: Tensor) -> float:
        total = 0.0
        for piece in in_pieces(x):
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


def _worst(measured: Residuals, count: int) -> list[WorstSample]:
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
    rows: Sequence[GeneratorDefect], measured: Residuals, random_errors: Sequence[float]
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
