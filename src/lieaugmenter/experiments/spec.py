"""What an experiment is: a task, methods, settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from lieaugmenter.data.task import Task
from lieaugmenter.learning.objective import Objective
from lieaugmenter.lie.samplers import warmup_share

KINDS = (
    "emlp",
    "lgatr",
    "gcnn",
    "gcnn-pooled",
    "trivial-paper",
    "trivial",
    "oracle-paper",
    "oracle",
    "augerino",
    "augerino-widths-paper",
    "augerino-widths",
    "liegan",
    "liegg",
    "lieaugmenter-paper",
    "lieaugmenter",
)
_PAPER = "-paper"
# What an ablation can set, by the words of a variant: weights of the objective by their names, the
# number of views, the range, the number of generators, and the share of the training data.
WEIGHTS = ("prediction", "equivariance", "similarity", "sparsity")
SETTINGS = (*WEIGHTS, "views", "range", "generators", "data")


@dataclass(frozen=True)
class Method:
    """One row of a table.

    Attributes
    ----------
    kind
        Of `KINDS`. A kind that ends in ``-paper`` has the paper's settings: a constant learning
        rate, the full range from the start, data as they are. Its namesake without has this
        project's: the rate falls as a cosine, the range grows at first, data are scaled. Without a
        namesake ``"lgatr"`` has this project's settings, and the other methods have those that were
        published for them. ``"augerino"`` is Augerino+, which learns its generators;
        ``"augerino-widths"`` is Augerino, which learns how far to go along all affine ones.
    variant
        Which mask, law of the coefficients, or head of a network; or what an ablation sets, such
        as ``"range-5"``; empty where there is only one. An oracle's ``"whole"`` draws from the
        whole group, not only up to the range. LieAugmenter's ``"constant"`` has the constant start
        of the paper where this project's runs have another.
    """

    kind: str
    variant: str = ""

    @property
    def name(self) -> str:
        """As in file names and on the command line."""
        return f"{self.kind}-{self.variant}" if self.variant else self.kind

    @property
    def row(self) -> str:
        """The paper's row to stand beside."""
        return self.name.replace(_PAPER, "")

    @property
    def ours(self) -> bool:
        """Whether it has this project's settings."""
        return self.kind in ("lgatr", "trivial", "oracle", "augerino-widths", "lieaugmenter")

    @property
    def setting(self) -> tuple[str, float] | None:
        """What an ablation sets, and to what: ``("range", 5.0)`` for the variant ``"range-5"``."""
        name, _, value = self.variant.partition("-")
        return (name, float(value)) if name in SETTINGS else None


@dataclass(frozen=True)
class LieGANSettings:
    """What the published code sets for a task: weights of the cosine, law, initial entries.

    The law is normal with the given deviation, or uniform on the integers up to a number. Augerino+
    has a weight of its own, and the same initial entries. The cosine may be one of spectra, and the
    generators' learning rate is the task's.
    """

    similarity: float = 1.0
    augerino_similarity: float = 1.0
    deviation: float = 1.0
    integers: int | None = None
    scale: float | None = None
    spectral: bool = False
    rate: float = 1e-3


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Attributes
    ----------
    name, title
        On the command line, and for readers.
    task
        Makes the data: from a file or folder if one is given, small for a quick run.
    data
        What the data are called that are taken where none are given.
    methods
        In the order of the paper's table.
    objective, range
        The paper's weights and γ.
    epochs
        Of every method, but for those of `epochs_of`.
    epochs_of
        By kind, where they differ: where a step takes much longer, or where fewer are enough.
    least_steps
        Of every method: few data are trained on for more epochs, until there are as many steps.
    own_objective
        The weights of this project's runs, chosen on training or validation data.
    network, hidden
        Makes a method's network for a task, of these widths.
    liegan
        LieGAN's settings for a method.
    masks
        Entries of the generators that may differ from zero, by variant; all where none is given.
    precision
        Of the network on a GPU; a CPU has float32 unless a run asks for another.
    own_lr, own_schedule
        Learning rate of this project's runs, the paper's unless given, and how it changes.
    own_views
        Elements that this project's runs average over; as many as in training unless given.
    own_further
        Whether averages of this project's runs may go along part of the span only, and further
        than training did: see `Predictor.choose_inference`.
    own_optimizer
        Of this project's runs: of `optimizer.OPTIMIZERS`.
    own_average
        Length of the running average of the weights in this project's runs, as a share of training.
    warmup, warmup_start
        In this project's runs, the share of training over which the range grows, and the share of
        the range that it starts from; chosen on orbits that were generated with another seed.
    prune
        In this project's runs, entries below this fraction of the largest are set to zero after
        a third of training; 0 keeps all.
    audited
        Test samples on which equivariance errors are taken, each times the number of views.
    stacked
        Whether the seeds of a method are trained as one model.
    compiled
        Whether networks are compiled where they are trained on a GPU, see `fit`.
    curve
        Test samples on which the error of direct predictions is kept after every epoch; 0 for no
        curve.
    losses
        Whether the terms of the objective are kept after every epoch, with the cosine to the true
        generators.
    standardised
        Whether every method, not only this project's runs, sees labels of mean 0 and deviation 1,
        as was published; inputs then keep their unit.
    error_unit
        A label's unit over that of the error in tables: 1000 for labels in eV and errors in meV.
    fallback
        Whether LieAugmenter of this project's runs has a plain network beside it, in case that
        does better on validation data.
    own_start
        Whether the generators of this project's runs begin where that plain network changes least.
    own_nimble
        Whether the generators of this project's runs stay easy to turn, see `LieAugmenter`.
    n_seeds
        How many are run unless it is said.
    save_every
        Seconds between checkpoints of a training that is not stacked; see `fit`.
    quick_settings
        What else a quick run sets, by attribute.
    base, unchanged
        Of an ablation: the experiment that it varies, and the value there of each setting. These
        runs are not repeated; results of the base stand for them.
    """

    name: str
    title: str
    task: Callable[[Path | None, bool], Task]
    methods: tuple[Method, ...]
    objective: Objective
    range: float
    epochs: int
    own_objective: Objective
    network: Callable[[Method, Task, tuple[int, ...]], nn.Module]
    hidden: tuple[int, ...]
    liegan: Callable[[Method], LieGANSettings] = lambda method: LieGANSettings()
    masks: Mapping[str, Tensor] = field(default_factory=lambda: MappingProxyType({}))
    batch_size: int = 64
    n_views: int = 10
    n_generators: int = 1
    lr: float = 1e-3
    quick_epochs: int = 2
    quick_views: int = 10
    precision: str = "float32"
    own_lr: float | None = None
    own_schedule: str = "cosine"
    own_views: int | None = None
    own_further: bool = False
    own_optimizer: str = "adam"
    own_average: float = 0.0
    warmup: float = 0.15
    warmup_start: float = 0.2
    prune: float = 0.0
    audited: int = 2000
    stacked: bool = True
    compiled: bool = False
    curve: int = 0
    losses: bool = False
    epochs_of: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    least_steps: int = 0
    standardised: bool = False
    error_unit: float = 1.0
    fallback: bool = True
    own_start: bool = False
    own_nimble: bool = False
    data: str = "generated"
    n_seeds: int = 3
    save_every: float | None = None
    quick_settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    base: str = ""
    unchanged: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def method(self, name: str) -> Method:
        """The method of that name."""
        found = {method.name: method for method in self.methods}
        if name not in found:
            raise ValueError(
                f"{self.name} has no method {name!r}; choose from {', '.join(sorted(found))}"
            )
        return found[name]

    def run_as(self, method: Method, *, quick: bool) -> Experiment:
        """The experiment as a method runs it: in its quick form, with what its variant sets.

        Parameters
        ----------
        method
            One of the methods.
        quick
            Few epochs and views, to see that everything runs.
        """
        ablated = self._ablated(method)
        if not quick:
            return replace(ablated, epochs=self.epochs_of.get(method.kind, self.epochs))
        views = min(ablated.n_views, self.quick_views)
        small = {"epochs": self.quick_epochs, "least_steps": 0, "n_views": views}
        return replace(ablated, **{**small, "own_views": views, **self.quick_settings})

    def for_samples(self, n: int) -> Experiment:
        """The experiment with as many epochs of `n` samples as its steps take."""
        steps = math.ceil(n / self.batch_size)
        return replace(self, epochs=max(self.epochs, math.ceil(self.least_steps / steps)))

    def _ablated(self, method: Method) -> Experiment:
        if method.variant == "constant":
            return replace(self, own_start=False)
        if method.setting is None:
            return self
        name, value = method.setting
        if name in WEIGHTS:
            return replace(
                self,
                objective=replace(self.objective, **{name: value}),
                own_objective=replace(self.own_objective, **{name: value}),
            )
        if name == "data":
            return self
        if name == "range":
            # Whatever γ is, it grows from the same coefficient, near the identity, and no faster.
            start = min(1.0, self.warmup_start * self.range / value)
            share = warmup_share(self.warmup, value, self.range)
            return replace(self, range=value, warmup_start=start, warmup=share)
        attribute = {"views": "n_views", "generators": "n_generators"}[name]
        return replace(self, **{attribute: int(value)})
