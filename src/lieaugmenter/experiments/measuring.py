"""What is measured of a trained method."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from lieaugmenter.actions.base import Batch, map_tensors
from lieaugmenter.analysis.compare import (
    absolute_cosine,
    cosine_on_span,
    frobenius_projection,
    principal_cosines,
)
from lieaugmenter.analysis.equivariance import (
    distance_from_identity,
    equivariance_errors,
)
from lieaugmenter.analysis.polarization import displacement_cosines
from lieaugmenter.data.amplitudes import FourMomenta
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.momenta import (
    before_training,
    compare_with_lorentz,
    covered_by_events,
    defects,
)
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.training import Settings, Trained
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.learning.trainer import History
from lieaugmenter.lie.brackets import closure_residual
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.samplers import IntegerGrid

# What is kept of every epoch, where an experiment shows it.
LOSSES = (
    "prediction", "equivariance", "similarity", "sparsity", "alignment", "validation", "range",
    "cosine",
)  # fmt: skip
# In a quick run equivariance errors are taken on so few test samples.
_AUDITED_QUICK = 20
# Samples on which it is measured how far elements move them.
_MOVED = 2000
# Derivatives along generators of four-momenta are taken on this many.
_JUDGED = 500
# A direction of several generators weaker than this fraction of the strongest is redundant.
_REDUNDANT_BELOW = 0.1
# Images, transformed ones included, that a network sees at once where only logits are kept.
_LOGITS_BATCH = 16_384


@torch.no_grad()
def measure(
    experiment: Experiment,
    method: Method,
    task: Task,
    trained: Trained,
    seed: int,
    settings: Settings,
) -> dict[str, Any]:
    """Everything that a table shows of one run."""
    # Judged alike, whatever an ablation has set for training.
    experiment = experiment.run_as(Method(method.kind), quick=settings.quick)
    result: dict[str, Any] = {"experiment": experiment.name, "method": method.name, "seed": seed}
    result.update(trained.measures)
    result["train-seconds"] = trained.history.seconds
    if trained.predictor is not None:
        result.update(_errors(experiment, method, task, trained))
        if task.generator is not None:
            audited = _AUDITED_QUICK if settings.quick else experiment.audited
            elements = _audit_elements(experiment, method, task, min(audited, len(task.y_test)))
            result.update(_equivariance(task, trained.predictor, elements))
    if trained.generators is not None and task.generator is not None:
        result.update(_discovery(task, trained.generators, task.generator))
    if isinstance(task, FourMomenta):
        result.update(_on_momenta(task, trained, _AUDITED_QUICK if settings.quick else _JUDGED))
    if trained.augmenter is not None:
        result.update(_reach(trained.augmenter, task))
    if experiment.curve:
        result.update(curve_of(trained.history))
    if experiment.losses:
        columns = {name: trained.history.column(name) for name in LOSSES}
        result["losses"] = {name: column for name, column in columns.items() if column}
    peaks = trained.history.column("peak_gb")
    if peaks:
        # Of the first epoch and of all: equal where memory does not grow.
        result["peak-gb"] = [peaks[0], max(peaks)]
    result["device"] = str(pick_device(settings.device))
    return result


def curve_of(history: History) -> dict[str, list[float]]:
    """The test error after every epoch that has one, and the seconds of training until then.

    >>> epochs = [{"test": 3.0, "seconds": 1.0}, {"test": 2.0, "seconds": 1.5}]
    >>> curve_of(History(epochs))
    {'test-curve': [3.0, 2.0], 'curve-seconds': [1.0, 2.5]}
    """
    return {
        "test-curve": history.column("test"),
        "curve-seconds": list(accumulate(history.column("seconds"))),
    }


def _errors(experiment: Experiment, method: Method, task: Task, trained: Trained) -> dict[str, Any]:
    """Test errors of the predictor, and how it came to predict."""
    predictor = trained.predictor
    assert predictor is not None  # asked by the caller
    name, error = _error(experiment, task)
    test = (task.x_test, task.y_test)
    found: dict[str, Any] = {f"{name}-direct": error(predictor, *test, views=0)}
    validation = None
    if task.x_validation is not None and task.y_validation is not None:
        validation = (task.x_validation, task.y_validation)
    if method.ours and validation is not None and trained.augmenter is not None:
        # Averaging, or the augmentation as a whole, is dropped where it does harm on validation
        # data.
        found[f"{name}-averaged"] = error(predictor, *test)
        found["inference"], _ = predictor.choose_inference(
            *validation,
            trained.plain,
            # The whole group goes as far as there is to go.
            further=experiment.own_further and trained.augmenter.n_factors == 1,
        )
        if predictor.reach:
            count = len(predictor.axes())
            found["reach"] = [predictor.reach.get(number, 0.0) for number in range(count)]
    started = time.monotonic()
    found[name] = error(predictor, *test)
    found["test-seconds"] = time.monotonic() - started
    if validation is not None:
        found["validation"] = error(predictor, *validation)
    if task.classes:
        found["confusion"] = _confusion(predictor, *test, task.classes)
    return found


def _error(experiment: Experiment, task: Task) -> tuple[str, Callable[..., float]]:
    """What is measured on the test set: its name, and a function of predictor, inputs, labels."""
    if task.classes:
        return "accuracy", _accuracy

    def error(predictor: Predictor, x: Batch, y: Tensor, views: int | None = None) -> float:
        return experiment.error_unit * predictor.loss(x, y, views=views)

    return ("mae" if experiment.objective.absolute else "mse"), error


def _accuracy(predictor: Predictor, x: Tensor, y: Tensor, views: int | None = None) -> float:
    """Per cent of the samples whose most probable class is the right one."""
    return 100 * float((predictor.predict(x, views=views).argmax(1) == y).double().mean())


def _confusion(predictor: Predictor, x: Tensor, y: Tensor, classes: int) -> list[list[int]]:
    """How many samples of each class (a row) were taken for which (a column)."""
    pairs = y * classes + predictor.predict(x).argmax(1)
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes).tolist()


def _discovery(task: Task, learned: Tensor, truth: Tensor) -> dict[str, Any]:
    """How the learned generators compare with the true one: the first, or the span of several."""
    if len(learned) > 1:
        units = torch.nn.functional.normalize(learned.flatten(1), dim=1)
        sizes = torch.linalg.svdvals(units)
        cosines = principal_cosines(learned, truth)
        return {
            "span-cosine": float(cosines.min()),
            "span-cosines": cosines.tolist(),
            # Of the mean square: 1 where the smaller span lies in the other.
            "span-overlap": float(cosines.square().mean()),
            "closure": closure_residual(learned),
            # Directions beside which the others are copies.
            "directions": int((sizes > _REDUNDANT_BELOW * sizes[0]).sum()),
        }
    found = {
        "cosine": float(absolute_cosine(learned[0], truth[0])),
        "projection": float(frobenius_projection(learned[0], truth[0])),
    }
    if task.x_train.ndim != 4:
        found["cosine-on-span"] = cosine_on_span(learned[0], truth[0], task.x_train)
        found["cosine-on-data"] = float(
            displacement_cosines(learned, truth, task.x_train, action=task.action)[0]
        )
    return found


def _on_momenta(task: FourMomenta, trained: Trained, judged: int) -> dict[str, Any]:
    """What the events, the network and the generators have of the Lorentz algebra."""
    found = covered_by_events(task)
    learned = trained.generators
    if learned is not None:
        found.update(compare_with_lorentz(task, learned))
    if trained.start is not None:
        found.update(before_training(task, trained.start))
    if trained.predictor is not None:
        # The plain network may have taken the place of the augmented one.
        network = trained.predictor.network
        x = trained.predictor.scale_x(task.x_test[:judged])
        found["defects"] = defects(network, x, task.generator)
        if learned is not None:
            found["learned-defects"] = defects(network, x, learned)
    return found


def _audit_elements(experiment: Experiment, method: Method, task: Task, n: int) -> Elements:
    """Elements of the true symmetry, some for each of n samples.

    A method that draws integers is audited with integers, as the paper seems to do: its errors
    are not comparable with those of the other rows.
    """
    assert task.generator is not None  # asked by the caller
    rng = torch.Generator().manual_seed(0)
    shape = (n, experiment.n_views, len(task.generator))
    coefficients = (2 * torch.rand(shape, generator=rng) - 1) * experiment.range
    if method.variant == "discrete":
        coefficients = IntegerGrid(experiment.range)(shape, rng)
    bound = experiment.range * float(task.generator.flatten(1).norm(dim=1).sum())
    return Elements(coefficients, task.generator, bound=bound, rows=task.action.rows)


def _equivariance(task: Task, predictor: Predictor, elements: Elements) -> dict[str, float]:
    """Both errors under the true symmetry, as means over output dimensions or logits."""
    device = predictor.y_scale.device
    elements = replace(
        elements, coefficients=elements.coefficients.to(device), basis=elements.basis.to(device)
    )
    x = map_tensors(lambda t: t[: elements.batch].to(device), task.x_test)
    model = _logits(predictor) if task.classes else predictor
    averaged, own = equivariance_errors(
        model, x, elements, action=task.action, output=task.output_action
    )
    outputs = task.classes or math.prod(task.y_test.shape[1:])
    return {"equivariance": averaged / outputs, "equivariance-2": own / outputs}


def _logits(predictor: Predictor) -> Callable[[Tensor], Tensor]:
    """The averaged logits, of which the paper's error seems to be."""
    return lambda x: predictor.averaged_over.predict(
        predictor.network, x, views=predictor.views, average="logits", batch_size=_LOGITS_BATCH
    )


def _reach(augmenter: LieAugmenter, task: Task) -> dict[str, float]:
    """How far the elements that a method draws are from doing nothing."""
    device = augmenter.term_weights.device
    action = augmenter.action
    x = map_tensors(lambda t: t[:_MOVED].to(device), task.x_test)
    rng = torch.Generator(device).manual_seed(0)
    elements = augmenter.sample(min(_MOVED, len(task.y_test)), generator=rng)
    views = map_tensors(lambda t: t.flatten(0, 1), action.act(elements, x))
    moved = action.moving(views).unflatten(0, (elements.batch, elements.views))
    moved = moved - action.moving(x).unsqueeze(1)
    return {
        "displacement": float(moved.norm(dim=2).mean()),
        "distance": distance_from_identity(elements),
    }
