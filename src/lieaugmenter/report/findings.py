"""Everything that a report shows, gathered in one value; it can live in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)


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
    history: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    command: str | None = None

    def save(self, run: RunFolder) -> None:
        """Write into a run folder; the verdict last, which marks the run as finished."""
        tensors = {"generators": self.generators}
        if self.truth is not None:
            tensors["truth"] = self.truth
        words = {
            "title": self.title,
            "sentence": self.sentence,
            "ranges": self.ranges,
            "action": self.action,
            "feature_names": self.feature_names,
            "numbers": self.numbers,
            "command": self.command,
        }
        write_tensors(run.path / "basis.safetensors", tensors, words)
        write_tensors(run.path / "samples.safetensors", {"samples": self.samples})
        write_json(run.path / "verdict.json", self.verdict.to_json())

    @classmethod
    def load(cls, run: RunFolder) -> Findings:
        """Read back what `save` wrote, with the run's metrics, settings and environment."""
        tensors, words = read_tensors(run.path / "basis.safetensors")
        samples, _ = read_tensors(run.path / "samples.safetensors")
        verdict = Verdict.from_json(read_json(run.path / "verdict.json"))
        try:
            return cls(
                verdict=verdict,
                generators=tensors["generators"],
                truth=tensors.get("truth"),
                samples=samples["samples"],
                history=run.metrics(),
                settings=run.config().get("parameters", {}),
                environment=read_json(run.path / "environment.json"),
                **words,
            )
        except (KeyError, TypeError) as error:
            raise RunError(f"{run.path} does not hold the results of a run: {error}") from None
