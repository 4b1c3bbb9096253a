"""How each method of an experiment is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.actions import InvariantAction, VectorAction
from lieaugmenter.analysis.polarization import entries, polarize
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.emlp import EMLP
from lieaugmenter.baselines.liegan import DISCRIMINATOR_RATE, Discriminator, LieGAN
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.engine import History, TrainingDiverged, fit
from lieaugmenter.learning.ensemble import fit_ensemble
from lieaugmenter.learning.objective import Objective
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.samplers import IntegerGrid, Normal, Uniform
from lieaugmenter.nets import MLP

# The share of training over which the range grows, where it does, and the share of the range that
# it starts from: chosen on orbits that were generated with another seed.
_WARMUP = 0.15
_WARMUP_START = 0.2
# LieGG looks at this many samples.
_POLARIZED = 2000


@dataclass
class Settings:
    """How an experiment is run, apart from what it is."""

    seeds: Sequence[int] = (0, 1, 2)
    # A file to take the data from; they are generated without one.
    source: Path | None = None
    quick: bool = False
    device: str = "auto"
    progress: bool = True
    # Train the seeds of a method as one stacked model where the method allows it.
    stacked: bool = True


@dataclass
class Trained:
    """What a method leaves behind for one seed."""

    predictor: Predictor | None
    generators: Tensor | None
    history: History
    # The augmenter whose elements the method draws, if it has one.
    augmenter: LieAugmenter | None = None
    # The same network trained alone, where validation data can tell which is better.
    plain: nn.Module | None = None
    measures: dict[str, Any] = field(default_factory=dict)


def epochs_of(experiment: Experiment, settings: Settings) -> int:
    """How many epochs every method of an experiment is trained."""
    return experiment.quick_epochs if settings.quick else experiment.epochs


def objective_of(experiment: Experiment, method: Method) -> Objective:
    """The weights that a method is trained with: this project's, or the paper's."""
    return experiment.own_objective if method.ours else experiment.objective


def train(
    experiment: Experiment, method: Method, task: Task, seeds: Sequence[int], settings: Settings
) -> Iterator[tuple[int, Trained]]:
    """Train a method for the given seeds, stacked where that is possible."""
    if method.kind == "liegg":
        for seed in seeds:
            yield seed, _polarized(experiment, method, task, seed, settings)
        return
    scaled = _Scaled.of(task, by_itself=method.ours)
    if settings.stacked and len(seeds) > 1:
        try:
            together = _train_together(experiment, method, scaled, seeds, settings)
            yield from zip(seeds, together, strict=True)
            return
        except TrainingDiverged:
            # One member has taken the others with it: each gets its own chance.
            pass
    for seed in seeds:
        yield seed, _or_diverged(experiment, method, scaled, seed, settings)


def _or_diverged(
    experiment: Experiment, method: Method, scaled: _Scaled, seed: int, settings: Settings
) -> Trained:
    try:
        return _train_together(experiment, method, scaled, [seed], settings)[0]
    except TrainingDiverged as error:
        return Trained(None, None, History(), measures={"diverged": str(error)})


def _options(experiment: Experiment, method: Method, settings: Settings) -> dict[str, Any]:
    """How a network is trained, by `fit` and by `fit_ensemble` alike."""
    return {
        "epochs": epochs_of(experiment, settings),
        "batch_size": experiment.batch_size,
        "lr": experiment.lr,
        "schedule": "cosine" if method.ours else "constant",
        "device": settings.device,
        "progress": settings.progress,
    }


def _train_together(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seeds: Sequence[int],
    settings: Settings,
) -> list[Trained]:
    """Train the given seeds in one go: as a stack if there are several."""
    games = [
        _play(experiment, method, scaled, seed, settings) if method.kind == "liegan" else None
        for seed in seeds
    ]
    networks = [_network(experiment, method, scaled.task, seed) for seed in seeds]
    augmenters = [
        _augmenter(experiment, method, scaled, seed, settings, game)
        for seed, game in zip(seeds, games, strict=True)
    ]
    options = _options(experiment, method, settings)
    if len(seeds) == 1:
        histories = [fit(networks[0], augmenters[0], scaled.train, seed=seeds[0], **options)]
    else:
        present = [augmenter for augmenter in augmenters if augmenter is not None]
        histories = fit_ensemble(networks, present or None, scaled.train, seeds=seeds, **options)
    members = zip(networks, augmenters, histories, games, strict=True)
    trained = [_trained(method, scaled, *member) for member in members]
    for one in trained:
        one.measures["stacked"] = len(seeds) > 1
    if method.kind == "lieaugmenter" and scaled.task.x_validation is not None:
        alone = [_network(experiment, method, scaled.task, seed) for seed in seeds]
        fit_ensemble(alone, None, scaled.train, seeds=seeds, **options)
        trained = [replace(one, plain=plain) for one, plain in zip(trained, alone, strict=True)]
    return trained


def _trained(
    method: Method,
    scaled: _Scaled,
    network: nn.Module,
    augmenter: LieAugmenter | None,
    history: History,
    game: tuple[LieGAN, History] | None,
) -> Trained:
    still = LieAugmenter(
        VectorAction(scaled.dim),
        output=scaled.task.output,
        basis=torch.zeros(1, scaled.dim, scaled.dim),
    )
    predictor = Predictor(
        network,
        (still if augmenter is None else augmenter).to(next(network.parameters()).device),
        x_scale=scaled.x_scale,
        y_scale=scaled.y_scale,
        y_shift=scaled.y_shift,
        views=0 if augmenter is None else None,
    )
    learned = method.kind in ("augerino", "liegan", "lieaugmenter", "lieaugmenter-paper")
    return Trained(
        predictor=predictor.to(next(network.parameters()).device),
        generators=augmenter.generators.detach().cpu() if augmenter and learned else None,
        history=history,
        augmenter=augmenter,
        measures={} if game is None else {"discovery-seconds": game[1].seconds},
    )


@dataclass(frozen=True)
class _Scaled:
    """Training data as the network sees them, and the way back."""

    task: Task
    train: tuple[Tensor, Tensor]
    x_scale: float
    y_scale: float
    y_shift: float

    @property
    def dim(self) -> int:
        return self.task.x_train.shape[-1]

    @classmethod
    def of(cls, task: Task, *, by_itself: bool) -> _Scaled:
        """Divide by one number, so that every linear symmetry stays what it is; or do nothing."""
        x, y = task.x_train, task.y_train
        if not by_itself:
            return cls(task, (x, y), 1.0, 1.0, 0.0)
        x_scale = float(x.square().mean().sqrt())
        if task.output == "same":
            # Labels move like inputs: one scale for both, and no shift.
            return cls(task, (x / x_scale, y / x_scale), x_scale, x_scale, 0.0)
        y_scale, y_shift = float(y.std()), float(y.mean())
        return cls(task, (x / x_scale, (y - y_shift) / y_scale), x_scale, y_scale, y_shift)


def _network(experiment: Experiment, method: Method, task: Task, seed: int) -> nn.Module:
    in_shape, out_shape = task.x_train.shape[1:], task.y_train.shape[1:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if method.kind == "emlp":
            assert task.generator is not None  # only tasks with a symmetry list it
            return EMLP(task.generator, in_shape, out_shape, output=task.output)
        return MLP(in_shape, out_shape, hidden=experiment.hidden)


def _augmenter(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seed: int,
    settings: Settings,
    game: tuple[LieGAN, History] | None,
) -> LieAugmenter | None:
    task, dim = scaled.task, scaled.dim
    common: dict[str, Any] = {"output": task.output, "n_views": experiment.n_views}
    kind = method.kind.removesuffix("-paper")
    if kind in ("trivial", "emlp"):
        return None
    if kind == "augerino":
        published = experiment.liegan(method)
        return AugerinoPlus(
            VectorAction(dim),
            mask=method.mask,
            scale=published.scale,
            generator=torch.Generator().manual_seed(seed),
            **common,
        )
    if kind == "liegan":
        assert game is not None  # it was played before
        return game[0].augmenter(objective_of(experiment, method))
    objective = objective_of(experiment, method)
    if kind == "oracle":
        truth = torch.zeros(1, dim, dim) if task.generator is None else task.generator
        return LieAugmenter(
            VectorAction(dim),
            range=experiment.range,
            warmup_steps=0,
            basis=truth,
            objective=objective.losses_only(),
            **common,
        )
    steps = epochs_of(experiment, settings) * math.ceil(len(task.x_train) / experiment.batch_size)
    law = IntegerGrid if method.variant == "discrete" else Uniform
    warmup = int(_WARMUP * steps) if method.ours else 0
    return LieAugmenter(
        VectorAction(dim),
        sampler=law(experiment.range, warmup_steps=warmup, warmup_start=_WARMUP_START),
        mask=method.mask,
        objective=objective,
        **common,
    )


def _play(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seed: int,
    settings: Settings,
) -> tuple[LieGAN, History]:
    """The adversarial discovery that comes before augmentation by its result."""
    task, published = scaled.task, experiment.liegan(method)
    law = Normal(published.deviation)
    liegan = LieGAN(
        VectorAction(scaled.dim),
        output=task.output,
        n_views=experiment.n_views,
        sampler=law if published.integers is None else IntegerGrid(float(published.integers)),
        similarity=published.similarity,
        mask=method.mask,
        scale=published.scale,
        generator=torch.Generator().manual_seed(seed),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        features = math.prod(task.x_train.shape[1:])
        discriminator = Discriminator(features, math.prod(task.y_train.shape[1:]))
    options = {**_options(experiment, method, settings), "lr": DISCRIMINATOR_RATE}
    history = fit(discriminator, liegan, scaled.train, seed=seed, **options)
    return liegan, history


def _polarized(
    experiment: Experiment, method: Method, task: Task, seed: int, settings: Settings
) -> Trained:
    """LieGG: what a predictor that was trained alone turns out to be invariant under."""
    network = _network(experiment, method, task, seed)
    options = _options(experiment, method, settings)
    history = fit(network, None, (task.x_train, task.y_train), seed=seed, **options)
    network = network.cpu().eval()
    action = VectorAction(task.x_train.shape[-1])
    output = action if task.output == "same" else InvariantAction()
    found = polarize(
        network,
        task.x_train[:_POLARIZED],
        action=action,
        output=output,
        candidates=None if method.mask is None else entries(method.mask),
    )
    return Trained(
        predictor=None,
        generators=found.span(1),
        history=history,
        measures={"variance": found.variance, "spectrum": found.spectrum[:8].tolist()},
    )
