"""How each method of an experiment is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.analysis.polarization import entries, polarize
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.liegan import (
    DISCRIMINATOR_RATE,
    Discriminator,
    ImageDiscriminator,
    LieGAN,
)
from lieaugmenter.baselines.lorentz import LorentzFrames
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.averaging import in_chunks
from lieaugmenter.learning.engine import History, TrainingDiverged, fit, pick_device
from lieaugmenter.learning.ensemble import fit_ensemble
from lieaugmenter.learning.objective import Objective
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.samplers import IntegerGrid, Normal, Uniform
from lieaugmenter.runs import RunFolder

# Entries are pruned after this part of training, a third.
_PRUNE_AFTER = 3
# Samples that a network sees at once when its test error is followed.
_LOOKED_AT = 4096
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


def precision_of(experiment: Experiment, settings: Settings) -> str:
    """Of the networks: what the experiment says on a GPU, float32 on a CPU."""
    on_gpu = pick_device(settings.device).type == "cuda"
    return experiment.precision if on_gpu else "float32"


def objective_of(experiment: Experiment, method: Method) -> Objective:
    """The weights that a method is trained with: this project's, or the paper's."""
    return experiment.own_objective if method.ours else experiment.objective


def training_folder(method: RunFolder, seed: int) -> RunFolder:
    """Where the trainings of a seed have their checkpoints, in the folder of its method."""
    return method.part(f"seed-{seed}", "training")


def train(
    experiment: Experiment,
    method: Method,
    task: Task,
    seeds: Sequence[int],
    settings: Settings,
    folder: RunFolder,
) -> Iterator[tuple[int, Trained]]:
    """Train a method for the given seeds, stacked where that is possible.

    Parameters
    ----------
    experiment, method, task, seeds, settings
        What to train.
    folder
        Of the method: seeds that are trained by themselves go on from their checkpoints there.
    """
    experiment, task = experiment.run_as(method, quick=settings.quick), _share(task, method)
    if method.kind == "liegg":
        for seed in seeds:
            run = training_folder(folder, seed)
            yield seed, _polarized(experiment, method, task, seed, settings, run)
        return
    scaled = _Scaled.of(task, by_itself=method.ours)
    # A stack has no moment between epochs at which to prune.
    if settings.stacked and experiment.stacked and not experiment.prune and len(seeds) > 1:
        try:
            together = _train_together(experiment, method, scaled, seeds, settings, folder)
            yield from zip(seeds, together, strict=True)
            return
        except TrainingDiverged:
            # One member has taken the others with it: each gets its own chance.
            pass
    for seed in seeds:
        yield seed, _or_diverged(experiment, method, scaled, seed, settings, folder)


def _share(task: Task, method: Method) -> Task:
    """The task with as much of its training data as the method's variant says."""
    if method.setting is None or method.setting[0] != "data":
        return task
    n = max(1, round(method.setting[1] * len(task.x_train)))
    return replace(task, x_train=task.x_train[:n], y_train=task.y_train[:n])


def _or_diverged(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seed: int,
    settings: Settings,
    folder: RunFolder,
) -> Trained:
    try:
        return _train_together(experiment, method, scaled, [seed], settings, folder)[0]
    except TrainingDiverged as error:
        return Trained(None, None, History(), measures={"diverged": str(error)})


def _options(experiment: Experiment, method: Method, settings: Settings) -> dict[str, Any]:
    """How a network is trained, by `fit` and by `fit_ensemble` alike."""
    return {
        "epochs": experiment.epochs,
        "batch_size": experiment.batch_size,
        "lr": (experiment.own_lr if method.ours else None) or experiment.lr,
        "schedule": experiment.own_schedule if method.ours else "constant",
        "precision": precision_of(experiment, settings),
        "device": settings.device,
        "progress": settings.progress,
    }


def _train_together(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seeds: Sequence[int],
    settings: Settings,
    folder: RunFolder,
) -> list[Trained]:
    """Train the given seeds in one go: as a stack if there are several."""
    runs = [training_folder(folder, seed) for seed in seeds]
    games = [
        _play(experiment, method, scaled, seed, settings, run.part("game"))
        if method.kind == "liegan"
        else None
        for seed, run in zip(seeds, runs, strict=True)
    ]
    networks = [_network(experiment, method, scaled.seen, seed) for seed in seeds]
    augmenters = [
        _augmenter(experiment, method, scaled, seed, game)
        for seed, game in zip(seeds, games, strict=True)
    ]
    options = _options(experiment, method, settings)
    prune = _pruning(experiment, method, augmenters[0])
    follow = _following(experiment, networks[0], scaled)
    looks = [look for look in (prune, follow) if look]
    histories = _fit_all(networks, augmenters, scaled, seeds, options, runs[0], looks)
    members = zip(networks, augmenters, histories, games, strict=True)
    trained = [_trained(experiment, method, scaled, *member) for member in members]
    for one in trained:
        one.measures["stacked"] = len(seeds) > 1
    # An ablation asks what a setting does to the method, not what could take its place.
    ablated = method.setting is not None
    if method.kind == "lieaugmenter" and not ablated and scaled.task.x_validation is not None:
        alone = [_network(experiment, method, scaled.seen, seed) for seed in seeds]
        _fit_all(alone, [None] * len(seeds), scaled, seeds, options, runs[0].part("plain"))
        trained = [replace(one, plain=plain) for one, plain in zip(trained, alone, strict=True)]
    return trained


def _pruning(
    experiment: Experiment, method: Method, augmenter: LieAugmenter | None
) -> Callable[[dict[str, Any]], None] | None:
    """What is to be done after every epoch: to set small entries to zero after a third of them."""
    if method.kind != "lieaugmenter" or augmenter is None or not experiment.prune:
        return None
    when = max(1, experiment.epochs // _PRUNE_AFTER)

    def look(record: dict[str, Any]) -> None:
        if record["epoch"] == when:
            augmenter.basis.prune(experiment.prune)

    return look


def _following(
    experiment: Experiment, network: nn.Module, scaled: _Scaled
) -> Callable[[dict[str, Any]], None] | None:
    """What is to be done after every epoch: to keep the test error of direct predictions.

    Nothing is chosen by it.
    """
    if not experiment.curve:
        return None
    x = scaled.task.x_test[: experiment.curve] / scaled.x_scale
    y = scaled.task.y_test[: experiment.curve]

    @torch.no_grad()
    def look(record: dict[str, Any]) -> None:
        device = next(network.parameters()).device
        network.eval()
        found = in_chunks(lambda chunk: network(chunk.to(device)).cpu(), x, _LOOKED_AT)
        network.train()
        error = found.reshape(y.shape) * scaled.y_scale + scaled.y_shift - y
        record["test"] = float(error.square().mean())

    return look


def _fit_all(
    networks: Sequence[nn.Module],
    augmenters: Sequence[LieAugmenter | None],
    scaled: _Scaled,
    seeds: Sequence[int],
    options: dict[str, Any],
    run: RunFolder,
    after_epoch: Sequence[Callable[[dict[str, Any]], None]] = (),
) -> list[History]:
    """Train one network by itself, with checkpoints in `run`; several as a stack, in float32."""

    def look(record: dict[str, Any]) -> None:
        for each in after_epoch:
            each(record)

    if len(seeds) == 1:
        one = {"validation": scaled.validation, "seed": seeds[0], "on_epoch": look}
        one |= {"run": run, "resume": True}
        return [fit(networks[0], augmenters[0], scaled.train, **one, **options)]
    present = [augmenter for augmenter in augmenters if augmenter is not None]
    stacked = {key: value for key, value in options.items() if key != "precision"}
    return fit_ensemble(networks, present or None, scaled.train, seeds=seeds, **stacked)


def _trained(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    network: nn.Module,
    augmenter: LieAugmenter | None,
    history: History,
    game: tuple[LieGAN, History] | None,
) -> Trained:
    action = scaled.task.action
    still = LieAugmenter(
        action, output=scaled.task.output, basis=torch.zeros(1, action.dim, action.dim)
    )
    predictor = Predictor(
        network,
        (still if augmenter is None else augmenter).to(next(network.parameters()).device),
        x_scale=scaled.x_scale,
        y_scale=scaled.y_scale,
        y_shift=scaled.y_shift,
        classes=scaled.task.classes,
        views=0 if augmenter is None else experiment.own_views if method.ours else None,
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
    def seen(self) -> Task:
        """The task with training data as the network sees them, whose scales it may depend on."""
        return replace(self.task, x_train=self.train[0], y_train=self.train[1])

    @property
    def validation(self) -> tuple[Tensor, Tensor] | None:
        """Validation data as the network sees them, where the task has them."""
        x, y = self.task.x_validation, self.task.y_validation
        if x is None or y is None:
            return None
        return x / self.x_scale, y if self.task.classes else (y - self.y_shift) / self.y_scale

    @classmethod
    def of(cls, task: Task, *, by_itself: bool) -> _Scaled:
        """Divide by one number, so that every linear symmetry stays what it is; or do nothing."""
        x, y = task.x_train, task.y_train
        # Pixels are already between 0 and 1, and classes have no scale.
        if not by_itself or task.classes:
            return cls(task, (x, y), 1.0, 1.0, 0.0)
        x_scale = float(x.square().mean().sqrt())
        if task.output == "same":
            # Labels move like inputs: one scale for both, and no shift.
            return cls(task, (x / x_scale, y / x_scale), x_scale, x_scale, 0.0)
        y_scale, y_shift = float(y.std()), float(y.mean())
        return cls(task, (x / x_scale, (y - y_shift) / y_scale), x_scale, y_scale, y_shift)


def _network(experiment: Experiment, method: Method, task: Task, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return experiment.network(method, task, experiment.hidden)


def _augmenter(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seed: int,
    game: tuple[LieGAN, History] | None,
) -> LieAugmenter | None:
    task, action = scaled.task, scaled.task.action
    common: dict[str, Any] = {"output": task.output, "n_views": experiment.n_views}
    kind = method.kind.removesuffix("-paper")
    if kind in ("trivial", "emlp", "lgatr", "gcnn", "gcnn-pooled"):
        return None
    if kind == "augerino":
        published = experiment.liegan(method)
        return AugerinoPlus(
            action,
            mask=experiment.masks.get(method.variant),
            similarity=published.augerino_similarity,
            scale=published.scale,
            generator=torch.Generator().manual_seed(seed),
            **common,
        )
    if kind == "liegan":
        assert game is not None  # it was played before
        return game[0].augmenter(objective_of(experiment, method))
    objective = objective_of(experiment, method)
    if kind == "oracle":
        still = torch.zeros(1, action.dim, action.dim)
        whole = method.variant == "whole"
        return LieAugmenter(
            action,
            sampler=LorentzFrames() if whole else Uniform(experiment.range),
            n_factors=LorentzFrames.factors if whole else 1,
            basis=still if task.generator is None else task.generator,
            objective=objective.losses_only(),
            **common,
        )
    steps = experiment.epochs * math.ceil(len(task.x_train) / experiment.batch_size)
    law = IntegerGrid if method.variant == "discrete" else Uniform
    warmup = int(experiment.warmup * steps) if method.ours else 0
    return LieAugmenter(
        action,
        n_generators=experiment.n_generators,
        sampler=law(experiment.range, warmup_steps=warmup, warmup_start=experiment.warmup_start),
        mask=experiment.masks.get(method.variant),
        objective=objective,
        **common,
    )


def _play(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seed: int,
    settings: Settings,
    run: RunFolder,
) -> tuple[LieGAN, History]:
    """The adversarial discovery that comes before augmentation by its result."""
    task, published = scaled.task, experiment.liegan(method)
    law = Normal(published.deviation)
    liegan = LieGAN(
        task.action,
        output=task.output,
        n_views=experiment.n_views,
        sampler=law if published.integers is None else IntegerGrid(float(published.integers)),
        similarity=published.similarity,
        spectral=published.spectral,
        rate=published.rate,
        mask=experiment.masks.get(method.variant),
        scale=published.scale,
        generator=torch.Generator().manual_seed(seed),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = task.x_train.shape[1:]
        discriminator = (
            ImageDiscriminator(shape[0], task.classes, width=16 if settings.quick else 128)
            if task.classes
            else Discriminator(math.prod(shape), math.prod(task.y_train.shape[1:]))
        )
    options = {**_options(experiment, method, settings), "lr": DISCRIMINATOR_RATE}
    history = fit(discriminator, liegan, scaled.train, seed=seed, run=run, resume=True, **options)
    return liegan, history


def _polarized(
    experiment: Experiment,
    method: Method,
    task: Task,
    seed: int,
    settings: Settings,
    run: RunFolder,
) -> Trained:
    """LieGG: what a predictor that was trained alone turns out to be invariant under."""
    network = _network(experiment, method, task, seed)
    options = _options(experiment, method, settings)
    data = (task.x_train, task.y_train)
    history = fit(network, None, data, seed=seed, run=run, resume=True, **options)
    network = network.cpu().eval()
    mask = experiment.masks.get(method.variant)
    found = polarize(
        network,
        task.x_train[:_POLARIZED],
        action=task.action,
        output=task.output_action,
        candidates=None if mask is None else entries(mask),
    )
    return Trained(
        predictor=None,
        generators=found.span(1),
        history=history,
        measures={"variance": found.variance, "spectrum": found.spectrum[:8].tolist()},
    )
