"""The demos: tasks whose symmetry is known, and how near a run came to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import lieaugmenter
from lieaugmenter.analysis.compare import absolute_cosine, frobenius_projection
from lieaugmenter.cli.requests import Prepared
from lieaugmenter.data.dynamics import FEATURES, TwoBody, two_body
from lieaugmenter.data.images import digits
from lieaugmenter.data.task import Task
from lieaugmenter.learning import Objective
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.nets import CNN
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import RunFolder

# Cosine above which the demo says that the true generator was found.
_RECOVERED = 0.99
# The paper's weights for images, but a tenth of its similarity: while the range is small it weighs
# up to a hundred times as much, and on 8 × 8 pixels it would then lead to a shear.
_DIGITS = Objective(
    prediction=1.0, equivariance=7.0, similarity=0.01, sparsity=1e-2, alignment=0.0, proximity=0.0
)


def prepare_demo(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    """Make the data of the demo asked for, and the estimator for them."""
    if request.get("task") == "digits":
        return _prepare_digits(folder, request)
    task = two_body(seed=request["seed"])
    # The paper's setting, with the range warm-up and a falling learning rate on.
    estimator = lieaugmenter.SymmetryRegressor(
        "mlp",
        action="vector",
        output="same",
        blocks=[2, 2, 2, 2],
        hidden=(128, 128, 128),
        objective=PAPER_TWO_BODY,
        n_views=10,
        range=2.0,
        scale=False,
        epochs=request["epochs"],
        batch_size=64,
        validation=0.05,
        random_state=request["seed"],
        run_directory=folder.path,
        feature_names=list(FEATURES),
        verbose=1,
    )

    def finish(fitted: Any) -> Findings:
        return _orbit_findings(fitted, task, request)

    return estimator, task.x_train.numpy(), task.y_train.numpy(), finish


def _orbit_findings(fitted: Any, task: TwoBody, request: dict[str, Any]) -> Findings:
    x, y = task.x_test.numpy(), task.y_test.numpy()

    def error(views: int) -> float:
        return float(np.square(fitted.predict(x, views=views) - y).mean())

    averaged, direct = error(fitted.n_views), error(0)
    return _demo_findings(
        fitted,
        task.generator,
        title="Two-body orbits",
        symmetry="The rotation that turns both bodies' positions and momenta together",
        test=f"On orbits that start in the other half of the plane the predictor's mean squared "
        f"error is {averaged:.2g}.",
        numbers={
            "test MSE, averaged over the symmetry": averaged,
            "test MSE, direct": direct,
        },
        command=f"lieaugmenter demo --seed {request['seed']} --epochs {request['epochs']}",
    )


def _prepare_digits(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    # The estimator holds out a part of its own.
    task = digits(1_400, 1, seed=request["seed"])
    estimator = lieaugmenter.SymmetryClassifier(
        _narrow_cnn,
        action="image",
        objective=_DIGITS,
        n_views=10,
        range=3.0,
        lr=2e-3,
        epochs=request["epochs"],
        validation=0.1,
        random_state=request["seed"],
        run_directory=folder.path,
        verbose=1,
    )

    def finish(fitted: Any) -> Findings:
        return _digit_findings(fitted, task, request)

    return estimator, task.x_train.numpy(), task.y_train.numpy(), finish


def _narrow_cnn(in_shape: tuple[int, int, int], out_shape: tuple[int]) -> CNN:
    """Narrow enough for a demo: on 8 × 8 pixels a wider one only takes longer."""
    return CNN(in_shape, out_shape[0], width=16)


def _digit_findings(fitted: Any, task: Task, request: dict[str, Any]) -> Findings:
    assert task.generator is not None
    x, y = task.x_test.numpy(), task.y_test.numpy()

    def accuracy(views: int) -> float:
        return float((fitted.predict(x, views=views) == y).mean())

    averaged, direct = accuracy(fitted.n_views), accuracy(0)
    return _demo_findings(
        fitted,
        task.generator,
        title="Rotated digits",
        symmetry="The rotation of the image plane",
        test=f"Of the images kept for testing, {100 * averaged:.1f} % are recognised.",
        numbers={
            "test accuracy, averaged over the symmetry": averaged,
            "test accuracy, direct": direct,
        },
        command=f"lieaugmenter demo digits --seed {request['seed']} --epochs {request['epochs']}",
    )


def _demo_findings(
    fitted: Any,
    truth: Tensor,
    *,
    title: str,
    symmetry: str,
    test: str,
    numbers: dict[str, float],
    command: str,
) -> Findings:
    """What a demo found, beside the symmetry that is known to be there."""
    learned = torch.from_numpy(fitted.generators_)
    cosine = float(absolute_cosine(learned, truth).max())
    found = fitted.findings()
    recovered = "was found" if cosine > _RECOVERED else "was not found"
    sentence = (
        f"{symmetry} {recovered}: the learned generator has cosine {cosine:.6f} with it, which the "
        f"demo knows and the verdict does not. {test} "
    )
    return fitted.findings(
        title=title,
        sentence=sentence + found.sentence,
        truth=truth,
        numbers={
            "cosine to the true generator": cosine,
            "Frobenius projection on it": float(frobenius_projection(learned, truth).max()),
            **numbers,
            **found.numbers,
        },
        command=command,
    )
