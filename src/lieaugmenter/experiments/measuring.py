"""What is measured of a trained method."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from lieaugmenter.actions import InvariantAction, VectorAction
from lieaugmenter.analysis.compare import absolute_cosine, cosine_on_span, frobenius_projection
from lieaugmenter.analysis.equivariance import (
    averaged_equivariance_error,
    distance_from_identity,
    equivariance_error,
)
from lieaugmenter.analysis.polarization import displacement_cosines
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.training import Settings, Trained
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.engine import pick_device
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.samplers import IntegerGrid

# Equivariance errors are taken on this many test samples, times the number of views.
_AUDITED = 2000


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
