"""Everything that a report shows, gathered in one value; it can live in a run folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Required, TypedDict

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.report.sweep import Sweep
from lieaugmenter.report.trials import Departure
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    fields_of,
    fits,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)

# Fields that are written as they are, in the header of the generators.
_WORDS = (
    "title",
    "sentence",
    "ranges",
    "action",
    "feature_names",
    "table",
    "spectrum",
    "algebra",
    "predictors",
    "seeds",
    "numbers",
    "command",
)


_TENSORS = ("generators", "learned", "truth", "exact")


@dataclass(frozen=True)
class Findings:
    """What a run found.

    Attributes
    ----------
    title
        Heading of the report.
    sentence
        The result in a sentence or two, to be pasted.
    verdict
        The verdict with its reasons.
    generators
        The learned generators, (c, d, d), in the units of the data.
    ranges
        The largest coefficient of each.
    action
        Name of the action: vector, points, affine, fourvector or image.
    feature_names
        Labels of the rows and columns of a generator.
    samples
        A few inputs to show the action on, (n, …).
    truth
        The true generators, (m, d, d), where they are known.
    learned
        Generators as they were found, (c, d, d), where those that are used were made exact.
    exact
        The named algebra nearest to the learned one, (k, d, d), where there is one.
    table
        A row for each number of generators that was looked at, 0 included: dimension,
        validation_loss, defect, upper, closure, seed_agreement, chosen.
    spectrum
        The defect of each dimension with its bounds, and whether the span surely is a symmetry:
        dimension, defect, lower, upper, holds.
    algebra
        What `Identity` says, without its tensors.
    sweep
        Samples carried along the generators, for the slider.
    departure
        How far predictions depart from the symmetry as elements grow.
    predictors
        Held-out losses of different ways to predict: predictor, loss, moved.
    seeds
        Of each training run its held-out loss, and the smallest principal cosine between its span
        and those of all runs: loss, cosines.
    history
        One record an epoch.
    numbers
        Name and value, the table of results.
    settings
        What was asked.
    environment
        Versions, device, time.
    command
        The command that repeats the run, if there is one.
    """

    title: str
    sentence: str
    verdict: Verdict
    generators: Float[Tensor, "c d d"]
    ranges: list[float]
    action: str
    feature_names: list[str]
    samples: Tensor
    truth: Float[Tensor, "m d d"] | None = None
    learned: Float[Tensor, "c d d"] | None = None
    exact: Float[Tensor, "k d d"] | None = None
    table: list[dict[str, Any]] = field(default_factory=list)
    spectrum: list[dict[str, Any]] = field(default_factory=list)
    algebra: dict[str, Any] | None = None
    sweep: Sweep | None = None
    departure: Departure | None = None
    predictors: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    command: str | None = None

    @property
    def as_learned(self) -> Float[Tensor, "c d d"]:
        """The generators before any of them was made exact."""
        return self.generators if self.learned is None else self.learned

    @property
    def made_exact(self) -> bool:
        """Whether the generators are not as they were learned."""
        return not torch.equal(self.as_learned, self.generators)

    def save(self, run: RunFolder) -> None:
        """Write into a run folder; the verdict last, which marks the run as finished."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        known = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        words = {name: getattr(self, name) for name in _WORDS}
        words["departure"] = None if self.departure is None else asdict(self.departure)
        write_tensors(run.path / "basis.safetensors", known, words)
        write_tensors(run.path / "samples.safetensors", {"samples": self.samples})
        if self.sweep is not None:
            write_tensors(run.path / "sweep.safetensors", self.sweep.tensors(), self.sweep.words())
        write_json(run.path / "verdict.json", self.verdict.to_json())

    @classmethod
    def load(cls, run: RunFolder) -> Findings:
        """Read back what `save` wrote, with the run's metrics, settings and environment."""
        basis, verdict = run.path / "basis.safetensors", run.path / "verdict.json"
        tensors, words = read_tensors(basis)
        samples, _ = read_tensors(run.path / "samples.safetensors")
        parts = {
            "verdict": Verdict.from_json(read_json(verdict), verdict),
            "departure": _read_departure(words.pop("departure", None), basis),
            "sweep": _read_sweep(run.path / "sweep.safetensors"),
            "history": run.metrics(),
            "settings": run.config().get("parameters", {}),
            "environment": read_json(run.path / "environment.json"),
        }
        for name, kind in _ROWS.items():
            if not fits(words.get(name, []), kind):
                raise RunError(f"{basis} is damaged: {name} does not hold what it should")
        found = cls(**fields_of(cls, {**words, **tensors, **samples, **parts}, run.path))
        _check_sizes(found, run.path)
        return found


class _Row(TypedDict, total=False):
    """Of the tables: what is shown, where it is there."""

    dimension: Required[int]
    group: str | None
    validation_loss: float | None
    defect: float | None
    lower: float | None
    upper: float | None
    holds: bool
    closure: float | None
    seed_agreement: float | None


class _Invariants(TypedDict):
    kind: str
    rank: int | None
    compact: bool | None
    killing_signature: list[int]
    metric_signature: list[int] | None


class _Algebra(TypedDict, total=False):
    name: Required[str]
    invariants: Required[_Invariants]
    description: str
    cosine: float | None
    alternatives: list[list[str | float]]


class _Way(TypedDict):
    predictor: str
    loss: float | None
    moved: float | None


class _Seed(TypedDict):
    loss: float | None
    cosines: list[float | None]


_ROWS = {
    "table": list[_Row],
    "spectrum": list[_Row],
    "algebra": _Algebra | list[Any] | None,
    "predictors": list[_Way],
    "seeds": list[_Seed],
}


def _check_sizes(found: Findings, where: Path) -> None:
    """Raise a `RunError` unless everything is about generators of one size."""
    c, d = found.generators.shape[0], found.generators.shape[-1]
    for name in _TENSORS:
        tensor = getattr(found, name)
        if tensor is not None and tensor.shape[1:] != (d, d):
            raise RunError(f"{where} is damaged: {name} have shape {tuple(tensor.shape)}")
    if len(found.as_learned) != c or len(found.ranges) != c or len(found.feature_names) > d:
        raise RunError(
            f"{where} is damaged: {len(found.ranges)} ranges and {len(found.feature_names)} names "
            f"for generators of shape {tuple(found.generators.shape)}"
        )


def _read_departure(content: Any, where: Path) -> Departure | None:
    if content is None:
        return None
    found = Departure(**fields_of(Departure, content, where))
    curves = [*found.learned, *found.random]
    if any(len(curve) != len(found.sizes) for curve in curves) or len(found.null) != 2:
        raise RunError(f"{where} is damaged: the curves of the departure are not of one length")
    return found


def _read_sweep(path: Path) -> Sweep | None:
    """None where nothing was found that could be carried along."""
    if not path.is_file():
        return None
    tensors, words = read_tensors(path)
    found = Sweep(**fields_of(Sweep, {**words, **tensors}, path))
    c, n, k = (*found.inputs.shape, 0, 0, 0)[:3]
    outputs = (c, n, k, len(found.outputs))
    shapes = {"weights": (c, k), "direct": outputs, "averaged": outputs, "expected": outputs}
    for name, shape in shapes.items():
        if getattr(found, name).shape != shape:
            raise RunError(f"{path} is damaged: {name} and the samples do not fit together")
    return found
