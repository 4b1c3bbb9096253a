"""What a task of the zoo is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.zoo.functions import Function, Sampler, stream
from lieaugmenter.actions import Action
from lieaugmenter.actions.words import make_action, make_output

KINDS = ("continuous", "none", "discrete-only", "approximate", "broken")
# Kinds on which to certify anything is an error.
NULL_KINDS = ("none", "discrete-only", "broken")
# Samples from which the size of the noise is taken; many, so that it hardly depends on the draw.
_CALIBRATION = 4096


def no_generators(d: int) -> Tensor:
    """The algebra {0} of d × d matrices."""
    return torch.zeros(0, d, d, dtype=torch.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class ZooTask:
    """A supervised task with its Lie algebra.

    Attributes
    ----------
    name, family
        What it is called, and what it is counted with.
    action, output
        As `lieaugmenter` names them.
    dim
        Number of coordinates of a vector or point; 2 for images.
    truth
        (c, d, d): a basis of the algebra of all symmetries among the matrices of the action.
    algebra
        Its name as `identify` gives it, "" for none.
    kind
        One of `KINDS`.
    note
        What one should know, the law of the inputs above all.
    sample
        Draws n samples in float64, in the coordinates that `target` takes.
    target
        The clean target: (n,) or (n, …) numbers, or (n, classes) scores.
    classes
        Number of classes, 0 for regression. The label is the class of the highest noisy score.
    nearest
        For approximate and broken symmetries: the algebra that was broken.
    observe
        Turns the coordinates of `target` into inputs; they are the inputs unless given.
    flow
        How fast a generator moves these coordinates; as it moves the inputs unless given.
    """

    name: str
    family: str
    action: str
    output: str
    dim: int
    truth: Tensor
    algebra: str
    kind: str
    note: str
    sample: Sampler
    target: Function
    classes: int = 0
    nearest: Tensor = field(default_factory=lambda: no_generators(0))
    observe: Function | None = None
    flow: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        size = self.input_action().dim
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: unknown kind {self.kind!r}")
        if self.truth.shape[1:] != (size, size):
            raise ValueError(f"{self.name}: truth has shape {tuple(self.truth.shape)}")
        if (self.kind == "continuous") != bool(len(self.truth)):
            raise ValueError(f"{self.name}: kind and truth disagree")

    @property
    def dimension(self) -> int:
        """Number of independent symmetries."""
        return len(self.truth)

    def input_action(self) -> Action:
        """How elements move inputs."""
        return make_action(self.action, self.dim)

    def output_action(self) -> Action:
        """How elements move targets; scores of classes never move."""
        return make_output(self.output, self.input_action())

    def draw(self, n: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and noisy targets, float32; labels int64.

        Parameters
        ----------
        n
            Number of samples.
        noise
            Standard deviation of the noise relative to that of the clean target. It is one number
            for all components: noise that differed between them would break symmetries.
        seed
            Of inputs and noise.
        """
        rng = stream(seed)
        z = self.sample(n, rng)
        clean = self.target(z)
        wobble = torch.randn(clean.shape, generator=rng, dtype=clean.dtype)
        noisy = clean + noise * self.deviation() * wobble
        x = z if self.observe is None else self.observe(z)
        return x.float(), noisy.argmax(-1) if self.classes else noisy.float()

    def deviation(self) -> float:
        """Standard deviation of the clean target, root mean square over its components."""
        return deviation(self.target, self.sample)


def deviation(target: Function, sample: Sampler) -> float:
    """Standard deviation of a target under a law of inputs, root mean square over components."""
    values = target(sample(_CALIBRATION, stream(0)))
    return float((values - values.mean(0)).square().mean().sqrt())


def balanced(scores: Function, sample: Sampler) -> Function:
    """Scores of mean 0 and deviation 1 each, so that no class is rare."""
    values = scores(sample(_CALIBRATION, stream(0)))
    mean, spread = values.mean(0), values.std(0)
    return lambda x: (scores(x) - mean.to(x)) / spread.to(x)
