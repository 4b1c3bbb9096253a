"""Run an experiment: train every method on every seed, measure, and keep each as a run folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.actions import InvariantAction, VectorAction
from lieaugmenter.analysis.compare import absolute_cosine, cosine_on_span, frobenius_projection
from lieaugmenter.analysis.equivariance import (
    averaged_equivariance_error,
    distance_from_identity,
    equivariance_error,
)
from lieaugmenter.analysis.polarization import displacement_cosines, entries, polarize
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.emlp import EMLP
from lieaugmenter.baselines.liegan import DISCRIMINATOR_RATE, Discriminator, LieGAN
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.engine import History, TrainingDiverged, fit, pick_device
from lieaugmenter.learning.ensemble import fit_ensemble
from lieaugmenter.learning.objective import Objective
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.samplers import IntegerGrid, Normal, Uniform
from lieaugmenter.nets import MLP
from lieaugmenter.runs import RunError, RunFolder, environment, read_json, write_json, write_tensors

# The share of training over which the range grows, where it does, and the share of the range that
# it starts from: chosen on orbits that were generated with another seed.
_WARMUP = 0.15
_WARMUP_START = 0.2
# Equivariance errors are taken on this many test samples, times the number of views.
_AUDITED = 2000
# Only the two losses: a fixed basis leaves nothing to regularise.
_LOSSES_ONLY = {"similarity": 0.0, "sparsity": 0.0, "alignment": 0.0, "proximity": 0.0}


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


def run_method(
    experiment: Experiment,
    method: Method,
    task: Task,
    out: Path,
    settings: Settings,
    note: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Train and measure one method for all seeds; finished runs are read, not repeated.

    Parameters
    ----------
    experiment, method
        What to run.
    task
        The data.
    out
        The folder of the experiment: a run folder for each method and seed goes into it.
    settings
        Seeds, device and the like.
    note
        Called with a line on what is being done.

    Returns
    -------
    list
        A result for each seed, as in its ``result.json``.
    """
    folders = {seed: out / method.name / f"seed-{seed}" for seed in settings.seeds}
    missing = [seed for seed, folder in folders.items() if not (folder / "result.json").exists()]
    for seed in folders.keys() - missing:
        _check_same(folders[seed], _configuration(experiment, method, seed, settings))
    if missing:
        note(f"{experiment.name}: {method.name}, seeds {', '.join(map(str, missing))}")
        for seed, trained in _train(experiment, method, task, missing, settings):
            result = _measure(experiment, method, task, trained, seed, settings)
            configuration = _configuration(experiment, method, seed, settings)
            _keep(folders[seed], configuration, trained, result)
    return [read_json(folder / "result.json") for folder in folders.values()]


def _configuration(
    experiment: Experiment, method: Method, seed: int, settings: Settings
) -> dict[str, Any]:
    """All that a result depends on besides code and device."""
    return {
        "experiment": experiment.name,
        "method": method.name,
        "seed": seed,
        "quick": settings.quick,
        "epochs": _epochs(experiment, settings),
        "batch_size": experiment.batch_size,
        "lr": experiment.lr,
        "hidden": list(experiment.hidden),
        "n_views": experiment.n_views,
        "range": experiment.range,
        "objective": asdict(_objective(experiment, method)),
        "source": settings.source.name if settings.source else "generated",
    }


def _check_same(folder: Path, configuration: dict[str, Any]) -> None:
    """A finished run counts only for the settings that it was made with."""
    kept = read_json(folder / "config.json")
    changed = [
        f"{key} {kept.get(key)!r}, now {value!r}"
        for key, value in configuration.items()
        if kept.get(key) != value
    ]
    if changed:
        raise RunError(
            f"{folder} was made with other settings ({'; '.join(changed)}); choose another folder"
        )


def _keep(
    path: Path, configuration: dict[str, Any], trained: Trained, result: dict[str, Any]
) -> None:
    folder = RunFolder(path)
    write_json(folder.config_path, configuration)
    write_json(path / "environment.json", environment())
    folder.write_metrics(trained.history.records)
    if trained.generators is not None:
        write_tensors(path / "basis.safetensors", {"generators": trained.generators})
    if trained.predictor is not None:
        write_tensors(path / "network.safetensors", trained.predictor.network.state_dict())
    # Last, because it is what marks the run as finished.
    write_json(path / "result.json", result)


# ------------------------------------------------------------------------------------ training


def _epochs(experiment: Experiment, settings: Settings) -> int:
    return experiment.quick_epochs if settings.quick else experiment.epochs


def _objective(experiment: Experiment, method: Method) -> Objective:
    return experiment.own_objective if method.ours else experiment.objective


def _train(
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
    options: dict[str, Any] = {
        "epochs": _epochs(experiment, settings),
        "batch_size": experiment.batch_size,
        "lr": experiment.lr,
        "schedule": "cosine" if method.ours else "constant",
        "device": settings.device,
        "progress": settings.progress,
    }
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
        return game[0].augmenter()
    objective = _objective(experiment, method)
    if kind == "oracle":
        truth = torch.zeros(1, dim, dim) if task.generator is None else task.generator
        return LieAugmenter(
            VectorAction(dim),
            range=experiment.range,
            warmup_steps=0,
            basis=truth,
            objective=Objective(**{**asdict(objective), **_LOSSES_ONLY}),
            **common,
        )
    steps = _epochs(experiment, settings) * math.ceil(len(task.x_train) / experiment.batch_size)
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
    history = fit(
        discriminator,
        liegan,
        scaled.train,
        epochs=_epochs(experiment, settings),
        batch_size=experiment.batch_size,
        lr=DISCRIMINATOR_RATE,
        schedule="constant",
        seed=seed,
        device=settings.device,
        progress=settings.progress,
    )
    return liegan, history


def _polarized(
    experiment: Experiment, method: Method, task: Task, seed: int, settings: Settings
) -> Trained:
    """LieGG: what a predictor that was trained alone turns out to be invariant under."""
    network = _network(experiment, method, task, seed)
    history = fit(
        network,
        None,
        (task.x_train, task.y_train),
        epochs=_epochs(experiment, settings),
        batch_size=experiment.batch_size,
        lr=experiment.lr,
        schedule="constant",
        seed=seed,
        device=settings.device,
        progress=settings.progress,
    )
    network = network.cpu().eval()
    action = VectorAction(task.x_train.shape[-1])
    output = action if task.output == "same" else InvariantAction()
    found = polarize(
        network,
        task.x_train[:_AUDITED],
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


# ----------------------------------------------------------------------------------- measuring


@torch.no_grad()
def _measure(
    experiment: Experiment,
    method: Method,
    task: Task,
    trained: Trained,
    seed: int,
    settings: Settings,
) -> dict[str, Any]:
    """Everything that a table shows of one run."""
    result: dict[str, Any] = {"experiment": experiment.name, "method": method.name, "seed": seed}
    result.update(trained.measures)
    result["train-seconds"] = trained.history.seconds
    if trained.predictor is not None:
        result["mse-direct"] = trained.predictor.loss(task.x_test, task.y_test, views=0)
        if method.ours and task.x_validation is not None and task.y_validation is not None:
            # Averaging, or the augmentation as a whole, is dropped where it does harm on
            # validation data.
            validation = (task.x_validation, task.y_validation)
            result["mse-averaged"] = trained.predictor.loss(task.x_test, task.y_test)
            result["inference"], _ = trained.predictor.choose_inference(*validation, trained.plain)
        started = time.monotonic()
        result["mse"] = trained.predictor.loss(task.x_test, task.y_test)
        result["test-seconds"] = time.monotonic() - started
        if task.x_validation is not None and task.y_validation is not None:
            result["validation"] = trained.predictor.loss(task.x_validation, task.y_validation)
        if task.generator is not None:
            result.update(_equivariance(experiment, method, task, trained.predictor))
    if trained.generators is not None and task.generator is not None:
        learned, truth = trained.generators[0], task.generator[0]
        result["cosine"] = float(absolute_cosine(learned, truth))
        result["cosine-on-span"] = cosine_on_span(learned, truth, task.x_train)
        result["cosine-on-data"] = float(
            displacement_cosines(
                learned[None], truth[None], task.x_train, action=VectorAction(len(truth))
            )[0]
        )
        result["projection"] = float(frobenius_projection(learned, truth))
    if trained.augmenter is not None:
        result.update(_reach(trained.augmenter, task))
    result["device"] = str(pick_device(settings.device))
    return result


def _equivariance(
    experiment: Experiment, method: Method, task: Task, predictor: Predictor
) -> dict[str, float]:
    """Both errors under the true symmetry, as means over output dimensions.

    A method that draws integers is audited with integers, as the paper seems to do: its errors
    are not comparable with those of the other rows.
    """
    assert task.generator is not None  # asked by the caller
    device = predictor.y_scale.device
    x = task.x_test[:_AUDITED].to(device)
    rng = torch.Generator().manual_seed(0)
    shape = (len(x), experiment.n_views, 1)
    coefficients = (2 * torch.rand(shape, generator=rng) - 1) * experiment.range
    if method.variant == "discrete":
        coefficients = IntegerGrid(experiment.range)(shape, rng)
    elements = Elements(
        coefficients.to(device),
        task.generator.to(device),
        bound=experiment.range * float(task.generator.norm()),
    )
    action = VectorAction(x.shape[-1])
    output = action if task.output == "same" else InvariantAction()
    n_outputs = math.prod(task.y_test.shape[1:])
    errors = {"equivariance": averaged_equivariance_error, "equivariance-2": equivariance_error}
    return {
        name: error(predictor, x, elements, action=action, output=output) / n_outputs
        for name, error in errors.items()
    }


def _reach(augmenter: LieAugmenter, task: Task) -> dict[str, float]:
    """How far the elements that a method draws are from doing nothing."""
    device = augmenter.term_weights.device
    x = task.x_test[:_AUDITED].to(device)
    rng = torch.Generator(device).manual_seed(0)
    elements = augmenter.sample(len(x), generator=rng)
    moved = augmenter.action.act(elements, x) - x.unsqueeze(1)
    return {
        "displacement": float(moved.flatten(2).norm(dim=2).mean()),
        "distance": distance_from_identity(elements),
    }
