"""How each method of an experiment is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.actions.base import Batch, map_tensors, tensors_of
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.polarization import entries, polarize
from lieaugmenter.baselines.augerino import Augerino, AugerinoPlus
from lieaugmenter.baselines.liegan import (
    DISCRIMINATOR_RATE,
    Discriminator,
    ImageDiscriminator,
    LieGAN,
)
from lieaugmenter.baselines.lorentz import LorentzFrames
from lieaugmenter.data.task import Task
from lieaugmenter.discovery import likeliest
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.averaging import in_chunks
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.learning.engine import fit
from lieaugmenter.learning.ensemble import fit_ensemble
from lieaugmenter.learning.objective import Objective
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.learning.trainer import History, TrainingDiverged
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.lie.samplers import IntegerGrid, Normal, Uniform
from lieaugmenter.runs import RunFolder

# Entries are pruned after this part of training, a third.
_PRUNE_AFTER = 3
# Samples that a network sees at once when its test error is followed.
_LOOKED_AT = 1024
# LieGG, and what generators begin from, look at this many samples.
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
    # When to stop training, by `time.monotonic`; the same call continues later.
    deadline: float | None = None
    # Of the networks, where it is not to be the usual one of the device.
    precision: str | None = None
    # How many runs share the device at a time: times depend on it.
    workers: int = 1

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline, if there is one; every training takes at least one step."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


@dataclass
class Trained:
    """What a method leaves behind for one seed."""

    predictor: Predictor | None
    generators: Tensor | None
    history: History
    # The augmenter whose elements the method draws, if it has one.
    augmenter: LieAugmenter | None = None
    # The generators that training began with, where they were not the constant ones.
    start: Tensor | None = None
    # The same network trained alone, where validation data can tell which is better.
    plain: nn.Module | None = None
    measures: dict[str, Any] = field(default_factory=dict)


def precision_of(experiment: Experiment, settings: Settings) -> str:
    """Of the networks: what was asked for; else the experiment's on a GPU, float32 on a CPU."""
    on_gpu = pick_device(settings.device).type == "cuda"
    return settings.precision or (experiment.precision if on_gpu else "float32")


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
        What to train, and how.
    folder
        Of the method: seeds that are trained by themselves go on from their checkpoints there.
    """
    task = _share(task, method)
    experiment = experiment.run_as(method, quick=settings.quick).for_samples(len(task.y_train))
    if method.kind == "liegg":
        for seed in seeds:
            run = training_folder(folder, seed)
            yield seed, _polarized(experiment, method, task, seed, settings, run)
        return
    scaled = _Scaled.of(
        task,
        inputs=method.ours and not experiment.standardised,
        labels=method.ours or experiment.standardised,
    )
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
    n = max(1, round(method.setting[1] * len(task.y_train)))
    x_train = map_tensors(lambda t: t[:n], task.x_train)
    return replace(task, x_train=x_train, y_train=task.y_train[:n])


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

    def alone(run: RunFolder) -> dict[str, Any]:
        return _alone(experiment, method, settings, run)

    games = [
        _play(experiment, method, scaled, seed, settings, alone(run.part("game")))
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
    objective = objective_of(experiment, method)
    plain = _plain(experiment, method, scaled, seeds, options, alone(runs[0].part("plain")))
    starts = (
        [_begin(*member, scaled) for member in zip(augmenters, plain, strict=True)]
        if experiment.own_start and plain
        else [None] * len(seeds)
    )
    prune = _pruning(experiment, method, augmenters[0])
    compare = _comparing(experiment, method, augmenters[0], scaled.task)
    follow = _following(experiment, networks[0], scaled)
    looks = [look for look in (prune, compare, follow) if look]
    own = {**alone(runs[0]), "on_epoch": _each(looks)}
    histories = _fit_all(networks, augmenters, objective, scaled, seeds, options, own)
    members = zip(networks, augmenters, histories, games, strict=True)
    trained = [_trained(experiment, method, scaled, *member) for member in members]
    for one, start in zip(trained, starts, strict=True):
        one.measures["stacked"] = len(seeds) > 1
        one.start = start
    if plain:
        trained = [replace(one, plain=beside) for one, beside in zip(trained, plain, strict=True)]
    return trained


def _plain(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seeds: Sequence[int],
    options: dict[str, Any],
    alone: dict[str, Any],
) -> list[nn.Module]:
    """The same networks trained without augmentation, where a method has them beside it."""
    # An ablation asks what a setting does to the method, not what could take its place.
    asked = method.kind == "lieaugmenter" and method.setting is None and experiment.fallback
    if not asked or scaled.task.x_validation is None:
        return []
    networks = [_network(experiment, method, scaled.seen, seed) for seed in seeds]
    objective = objective_of(experiment, method)
    _fit_all(networks, [None] * len(seeds), objective, scaled, seeds, options, alone)
    return networks


@torch.no_grad()
def _begin(augmenter: LieAugmenter | None, network: nn.Module, scaled: _Scaled) -> Tensor:
    """Let generators begin where a network that was trained without them changes least."""
    assert augmenter is not None  # LieAugmenter's
    device = next(network.parameters()).device
    seen = map_tensors(lambda t: t[:_POLARIZED].to(device), scaled.train[0])
    action, count = augmenter.action, augmenter.basis.n_generators
    options: dict[str, Any] = {"action": action, "output": augmenter.output}
    found = likeliest(
        network.eval(), seen, count, candidates=entries(augmenter.basis.mask), **options
    )
    augmenter.basis.start_at(found)
    return augmenter.generators.cpu()


def _alone(
    experiment: Experiment, method: Method, settings: Settings, run: RunFolder
) -> dict[str, Any]:
    """What only a training that is not stacked knows: checkpoints, averages of weights, other
    optimisers than Adam, and compiled networks.
    """
    return {
        "optimizer": experiment.own_optimizer if method.ours else "adam",
        "compile": experiment.compiled and pick_device(settings.device).type == "cuda",
        "average": experiment.own_average if method.ours else 0.0,
        "run": run,
        "resume": True,
        "save_every": experiment.save_every,
        "keep_weights": True,
        "time_limit": settings.seconds_left,
    }


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


def _comparing(
    experiment: Experiment, method: Method, augmenter: LieAugmenter | None, task: Task
) -> Callable[[dict[str, Any]], None] | None:
    """What is to be done after every epoch: to keep how near the generators are to the true ones.

    Nothing is chosen by it.
    """
    truth = task.generator
    learns = method.kind.startswith("lieaugmenter")
    if not (experiment.losses and learns) or augmenter is None or truth is None:
        return None

    @torch.no_grad()
    def look(record: dict[str, Any]) -> None:
        record["cosine"] = float(principal_cosines(augmenter.generators.cpu(), truth).min())

    return look


def _following(
    experiment: Experiment, network: nn.Module, scaled: _Scaled
) -> Callable[[dict[str, Any]], None] | None:
    """What is to be done after every epoch: to keep the test error of direct predictions.

    Nothing is chosen by it.
    """
    if not experiment.curve:
        return None
    x, y = scaled.first_of_test(experiment.curve)
    absolute = experiment.objective.absolute

    def predict(chunk: Batch) -> Tensor:
        device = next(network.parameters()).device
        return network(map_tensors(lambda t: t.to(device), chunk)).cpu()

    @torch.no_grad()
    def look(record: dict[str, Any]) -> None:
        network.eval()
        found = in_chunks(predict, x, _LOOKED_AT)
        network.train()
        error = scaled.y_scale * (found.reshape(y.shape) - y)
        mean = (error.abs() if absolute else error.square()).mean()
        record["test"] = experiment.error_unit * float(mean)

    return look


def _each(looks: Sequence[Callable[[dict[str, Any]], None]]) -> Callable[[dict[str, Any]], None]:
    """All of them, one after the other."""

    def look(record: dict[str, Any]) -> None:
        for one in looks:
            one(record)

    return look


def _fit_all(
    networks: Sequence[nn.Module],
    augmenters: Sequence[LieAugmenter | None],
    objective: Objective,
    scaled: _Scaled,
    seeds: Sequence[int],
    options: dict[str, Any],
    alone: dict[str, Any],
) -> list[History]:
    """Train one network by itself, with what it has `alone`; several as a stack, in float32."""
    if len(seeds) == 1:
        learner = Unaugmented(objective) if augmenters[0] is None else augmenters[0]
        one = {"validation": scaled.validation, "seed": seeds[0]}
        return [fit(networks[0], learner, scaled.train, **one, **options, **alone)]
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
        absolute=experiment.objective.absolute,
    )
    learned = method.kind in ("augerino", "liegan", "lieaugmenter", "lieaugmenter-paper")
    measures: dict[str, Any] = {} if game is None else {"discovery-seconds": game[1].seconds}
    if isinstance(augmenter, Augerino):
        measures["widths"] = augmenter.widths.tolist()
    return Trained(
        predictor=predictor.to(next(network.parameters()).device),
        generators=augmenter.generators.detach().cpu() if augmenter and learned else None,
        history=history,
        augmenter=augmenter,
        measures=measures,
    )


@dataclass(frozen=True)
class _Scaled:
    """Training data as the network sees them, and the way back."""

    task: Task
    x_scale: float = 1.0
    y_scale: float = 1.0
    y_shift: float = 0.0

    @property
    def seen(self) -> Task:
        """The task with training data as the network sees them, whose scales it may depend on."""
        return replace(self.task, x_train=self.train[0], y_train=self.train[1])

    @property
    def train(self) -> tuple[Batch, Tensor]:
        """Training data as the network sees them."""
        return self._seen(self.task.x_train, self.task.y_train)

    @property
    def validation(self) -> tuple[Batch, Tensor] | None:
        """Validation data as the network sees them, where the task has them."""
        x, y = self.task.x_validation, self.task.y_validation
        return None if x is None or y is None else self._seen(x, y)

    def first_of_test(self, n: int) -> tuple[Batch, Tensor]:
        """Some test data as the network sees them."""
        return self._seen(map_tensors(lambda t: t[:n], self.task.x_test), self.task.y_test[:n])

    def _seen(self, x: Batch, y: Tensor) -> tuple[Batch, Tensor]:
        seen = map_tensors(lambda t: t / self.x_scale if t.is_floating_point() else t, x)
        return seen, y if self.task.classes else (y - self.y_shift) / self.y_scale

    @classmethod
    def of(cls, task: Task, *, inputs: bool, labels: bool) -> _Scaled:
        """Divide by one number, so that every linear symmetry stays what it is; or do nothing."""
        # Pixels are already between 0 and 1, and classes have no scale.
        if task.classes or not (inputs or labels):
            return cls(task)
        x_scale = 1.0
        if inputs:
            x_scale = float(task.action.moving(task.x_train).square().mean().sqrt())
        if task.output == "same":
            # Labels move like inputs: one scale for both, and no shift.
            return cls(task, x_scale, x_scale)
        y = task.y_train
        return cls(task, x_scale, float(y.std()), float(y.mean()))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw as a function of the seed inside; torch's own random state is untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _network(experiment: Experiment, method: Method, task: Task, seed: int) -> nn.Module:
    with _seeded(seed):
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
    if kind == "augerino-widths":
        return Augerino(action, absolute=experiment.objective.absolute, **common)
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
    steps = experiment.epochs * math.ceil(len(task.y_train) / experiment.batch_size)
    law = IntegerGrid if method.variant == "discrete" else Uniform
    warmup = int(experiment.warmup * steps) if method.ours else 0
    sampler = law(experiment.range, warmup_steps=warmup, warmup_start=experiment.warmup_start)
    # Several generators start a little apart, at random.
    with _seeded(seed):
        return LieAugmenter(
            action,
            n_generators=experiment.n_generators,
            sampler=sampler,
            mask=experiment.masks.get(method.variant),
            objective=objective,
            nimble=method.ours and experiment.own_nimble,
            **common,
        )


def _play(
    experiment: Experiment,
    method: Method,
    scaled: _Scaled,
    seed: int,
    settings: Settings,
    alone: dict[str, Any],
) -> tuple[LieGAN, History]:
    """The adversarial discovery that comes before augmentation by its result."""
    task, published = scaled.task, experiment.liegan(method)
    law = Normal(published.deviation)
    liegan = LieGAN(
        task.action,
        n_generators=experiment.n_generators,
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
    numbers = sum(math.prod(t.shape[1:]) for t in tensors_of(task.x_train))
    with _seeded(seed):
        discriminator = (
            ImageDiscriminator(
                task.x_train.shape[1], task.classes, width=16 if settings.quick else 128
            )
            if task.classes
            else Discriminator(numbers, math.prod(task.y_train.shape[1:]))
        )
    options = {**_options(experiment, method, settings), "lr": DISCRIMINATOR_RATE}
    history = fit(discriminator, liegan, scaled.train, seed=seed, **options, **alone)
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
    alone = _alone(experiment, method, settings, run)
    history = fit(network, None, data, seed=seed, **options, **alone)
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
