"""The methods that the zoo compares: functions of a task's data that return a record.

A method sees the action and how outputs move; those that are `told` also see how many generators
there are (1 where there is none). The record has `certified`, `dimension`, `generators`, `name`,
`seconds` and `extra`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo.task import ZooTask
from lieaugmenter import SymmetryClassifier, SymmetryRegressor, fit
from lieaugmenter.actions import AffineAction, ImageAction
from lieaugmenter.analysis.identify import LARGEST_NAMED, identify
from lieaugmenter.analysis.polarization import Polarization, polarize
from lieaugmenter.analysis.verdict import quality_of
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.liegan import DISCRIMINATOR_RATE, Discriminator, LieGAN
from lieaugmenter.discovery import Evidence, discover, gather, known, team_network
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.nets import CNN, MLP

HELD_OUT = 0.2
_WIDTHS = (64, 64, 64)
_EPOCHS = 60
_TEAM_EPOCHS = 200
_LIEGAN_EPOCHS = 40
_POLARIZED = 800


@dataclass(frozen=True)
class Method:
    """A method and what its records mean.

    Attributes
    ----------
    run
        (task, x, y, seed) to a record.
    certifies
        Whether it ever says that there is a symmetry, or only where one would be.
    told
        Whether it is given the true dimension.
    """

    run: Callable[[ZooTask, Tensor, Tensor, int], dict[str, Any]]
    certifies: bool
    told: bool


def _smooth(x: Tensor, out_shape: tuple[int, ...]) -> nn.Module:
    """A perceptron on flattened samples with SiLU, as in LieGG: its derivatives matter."""
    return MLP(x.shape[1:], out_shape, hidden=_WIDTHS, smooth=True)


@dataclass(frozen=True)
class _Split:
    """Data to train on and to look at, targets in units in which they are of size 1."""

    x: Tensor
    y: Tensor
    x_held: Tensor
    y_held: Tensor
    out_shape: tuple[int, ...]


def _in_units(task: ZooTask, y: Tensor) -> Tensor:
    """Labels as they are; numbers with an axis for them, of size 1 where they do not move.

    A target that moves with the inputs keeps their units: scaling does not commute with
    translations.
    """
    if task.classes or task.output == "same":
        return y
    return ((y - y.mean(0)) / y.std()).reshape(len(y), -1)


def _split(task: ZooTask, x: Tensor, y: Tensor) -> _Split:
    y, held = _in_units(task, y), round(HELD_OUT * len(x))
    out_shape = (task.classes,) if task.classes else tuple(y.shape[1:])
    return _Split(x[held:], y[held:], x[:held], y[:held], out_shape)


def _whole(data: _Split) -> _Split:
    """All of it to train on, and all of it to look at."""
    x, y = torch.cat([data.x, data.x_held]), torch.cat([data.y, data.y_held])
    return replace(data, x=x, y=y, x_held=x, y_held=y)


def _trained(data: _Split, augmenter: LieAugmenter | None, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _smooth(data.x, data.out_shape)
    fit(
        model,
        augmenter,
        (data.x, data.y),
        epochs=_EPOCHS,
        lr=3e-3,
        seed=seed,
        device="cpu",
        progress=False,
    )
    return model.eval()


def _name(task: ZooTask, generators: Tensor) -> str:
    action = task.input_action()
    if not len(generators) or action.dim > LARGEST_NAMED:
        return ""
    found = identify(generators, rows=action.rows, space_dim=action.space_dim)
    return found.name if found.named else ""


def _record(
    task: ZooTask, generators: Tensor, start: float, *, certified: bool, **extra: Any
) -> dict[str, Any]:
    """The record of generators that were found; naming them is not part of the time."""
    seconds = time.perf_counter() - start
    return {
        "certified": certified,
        "dimension": len(generators),
        "generators": generators.tolist(),
        "name": _name(task, generators),
        "seconds": seconds,
        "extra": extra,
    }


def largest_gap(spectrum: Tensor) -> int:
    """How many values lie below the largest ratio between neighbours: never none, never all.

    >>> largest_gap(torch.tensor([1e-6, 2e-6, 0.1, 1.0]))
    2
    """
    logs = spectrum.double().clamp_min(1e-30).log()
    return int(logs.diff().argmax()) + 1 if len(logs) > 1 else 1


def _polarized(task: ZooTask, data: _Split, seed: int) -> tuple[Polarization, float]:
    """The spectrum of a plain network on the inputs to look at, and the network's quality there."""
    model = _trained(data, None, seed)

    def probabilities(inputs: Tensor) -> Tensor:
        # Cross-entropy leaves a number common to all logits open, probabilities do not.
        return model(inputs).softmax(-1)

    found = polarize(
        probabilities if task.classes else model,
        data.x_held[:_POLARIZED],
        action=task.input_action(),
        output=task.output_action(),
    )
    with torch.no_grad():
        return found, quality_of(model(data.x_held), data.y_held)


def liegg_gap(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """LieGG with the largest gap of the spectrum as the dimension. It cannot say none."""
    start = time.perf_counter()
    found, quality = _polarized(task, _split(task, x, y), seed)
    generators = found.span(largest_gap(found.spectrum))
    return _record(
        task, generators, start, certified=True, quality=quality, spectrum=found.spectrum.tolist()
    )


def liegg_known(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """LieGG told how many generators there are; it learns from all data, as `ours_known` does."""
    start = time.perf_counter()
    found, _ = _polarized(task, _whole(_split(task, x, y)), seed)
    generators = found.span(_told(task))
    return _record(task, generators, start, certified=False, spectrum=found.spectrum.tolist())


def _told(task: ZooTask) -> int:
    return max(task.dimension, 1)


def augerino(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """Augerino+ told how many generators there are."""
    start = time.perf_counter()
    data = _split(task, x, y)
    augmenter = AugerinoPlus(
        task.action,
        task.dim,
        _told(task),
        task.output_action(),
        generator=torch.Generator().manual_seed(seed),
    )
    model = _trained(data, augmenter, seed)
    with torch.no_grad():
        quality = quality_of(model(data.x_held), data.y_held)
    generators = augmenter.generators.detach()
    return _record(task, generators, start, certified=False, quality=quality)


def liegan(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """LieGAN told how many generators there are; it uses all data, for it predicts nothing."""
    start = time.perf_counter()
    outputs, y = task.classes or y[0].numel(), _in_units(task, y)
    game = LieGAN(
        task.action,
        task.dim,
        _told(task),
        task.output_action(),
        generator=torch.Generator().manual_seed(seed),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        discriminator = Discriminator(x[0].numel(), outputs, width=128)
    fit(
        discriminator,
        game,
        (x, y),
        epochs=_LIEGAN_EPOCHS,
        lr=DISCRIMINATOR_RATE,
        schedule="constant",
        seed=seed,
        device="cpu",
        progress=False,
    )
    return _record(task, game.generators.detach(), start, certified=False)


def _team_network(task: ZooTask, data: _Split) -> nn.Module:
    """What the estimators take for a team."""
    if isinstance(task.input_action(), ImageAction):
        channels, height, width = data.x.shape[1:]
        return CNN((channels, height, width), *data.out_shape)
    return team_network(data.x.shape[1:], data.out_shape, task.classes)


def _gathered(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> tuple[Evidence, float]:
    """The evidence of ``n_generators="auto"``, and the unit of its inputs."""
    scale = _unit(x)
    data = _scaled(task, x, y, scale)
    action = task.input_action()
    image = isinstance(action, ImageAction)
    options = {"members": 1, "most_steps": 1500, "lr": 1e-3} if image else {}
    evidence = gather(
        lambda: _team_network(task, data),
        (data.x, data.y),
        (data.x_held, data.y_held),
        action=action,
        output=task.output_action(),
        classes=task.classes,
        epochs=_TEAM_EPOCHS,
        device="cpu",
        seed=seed,
        **options,
    )
    return evidence, scale


def _unit(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def _scaled(task: ZooTask, x: Tensor, y: Tensor, scale: float) -> _Split:
    return _split(task, x / scale, y / scale if task.output == "same" else y)


def _in_units_of_data(task: ZooTask, generators: Tensor, scale: float) -> Tensor:
    generators = generators.clone()
    if isinstance(task.input_action(), AffineAction):
        generators[:, :-1, -1] *= scale
    return generators


def ours(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """What ``n_generators="auto"`` does before it trains a predictor with what it found."""
    start = time.perf_counter()
    evidence, scale = _gathered(task, x, y, seed)
    largest = task.input_action().usual_range
    found = discover(evidence, largest=largest, labels=bool(task.classes))
    verdict = found.verdict
    return {
        "certified": verdict.outcome == "certified",
        "dimension": verdict.dimension,
        "generators": _in_units_of_data(task, found.span, scale).tolist(),
        "name": verdict.group or "",
        "seconds": time.perf_counter() - start,
        "extra": {
            "outcome": verdict.outcome,
            "defect": verdict.defect,
            "upper": verdict.upper,
            "quality": verdict.quality,
            "trial": None if evidence.trial is None else asdict(evidence.trial),
            "components": verdict.components,
            "rows": [
                [row.defect, row.lower, row.upper, row.together]
                for row in evidence.dimensions.rows[:16]
            ],
        },
    }


def ours_known(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """Told how many generators there are, from all data: nothing is left to be judged."""
    start = time.perf_counter()
    scale = _unit(x)
    data = _whole(_scaled(task, x, y, scale))
    generators = known(
        lambda: _smooth(data.x, data.out_shape),
        (data.x, data.y),
        _told(task),
        action=task.input_action(),
        output=task.output_action(),
        classes=task.classes,
        device="cpu",
        seed=seed,
    )
    return _record(task, _in_units_of_data(task, generators, scale), start, certified=False)


def ours_joint(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """What an estimator that is told how many there are learns together with its predictor."""
    start = time.perf_counter()
    kind = SymmetryClassifier if task.classes else SymmetryRegressor
    model = kind(
        action=task.input_action(),
        output=task.output_action(),
        n_generators=_told(task),
        device="cpu",
        random_state=seed,
    ).fit(x.numpy(), y.numpy())
    generators = torch.from_numpy(model.generators_)
    return _record(task, generators, start, certified=False)


METHODS: dict[str, Method] = {
    "liegg-gap": Method(liegg_gap, certifies=True, told=False),
    "liegg-known": Method(liegg_known, certifies=False, told=True),
    "augerino": Method(augerino, certifies=False, told=True),
    "liegan": Method(liegan, certifies=False, told=True),
    "ours": Method(ours, certifies=True, told=False),
    "ours-known": Method(ours_known, certifies=False, told=True),
    "ours-joint": Method(ours_joint, certifies=False, told=True),
}
