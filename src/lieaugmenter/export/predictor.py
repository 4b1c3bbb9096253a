"""The predictor of a run: kept in its folder, loaded from it, and written for use without it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from lieaugmenter.actions.words import make_action, make_output
from lieaugmenter.analysis.models import network_of_run
from lieaugmenter.learning.frozen import FrozenPredictor
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    fits,
    in_short,
    read_tensors,
    write_atomically,
    write_tensors,
)

_ELEMENTS = "elements.safetensors"


class _Kept(TypedDict):
    """What is kept beside the scales of a network."""

    views: int
    labels: list[bool | int | float | str] | None


@dataclass(frozen=True, eq=False)
class RunPredictor:
    """The predictor of a finished run.

    Attributes
    ----------
    module
        From samples to values or probabilities of classes, in the units of the data.
    labels
        The classes in the order of their probabilities; None of a regression.
    sample_shape
        Of one sample.
    """

    module: FrozenPredictor
    labels: list[Any] | None
    sample_shape: tuple[int, ...]


def save_predictor(
    run: RunFolder, predictor: Predictor, labels: Sequence[Any] | None = None
) -> None:
    """Keep the network, the scales that it needs, and the elements that it is averaged over.

    Parameters
    ----------
    run
        The folder.
    predictor
        As it is to predict.
    labels
        Of a classifier, the classes in their order; words, numbers or truth values.
    """
    kept = {
        "x_scale": predictor.x_scale,
        "y_scale": predictor.y_scale.tolist(),
        "y_shift": predictor.y_shift.tolist(),
        "views": predictor.views,
        "classes": predictor.classes,
        "labels": None if labels is None else list(labels),
    }
    write_tensors(run.path / _ELEMENTS, {"matrices": predictor.matrices()})
    write_tensors(run.path / "network.safetensors", predictor.network.state_dict(), kept)


def load_predictor(path: str | Path) -> RunPredictor:
    """The predictor of a finished run, as it was chosen on held-out data: averaged or direct.

    Parameters
    ----------
    path
        The run folder.

    Raises
    ------
    RunError
        If the run is damaged, of an older version, or has a network or an action of your own.
    """
    path = Path(path)
    trained = network_of_run(path)
    labels = trained.rest.get("labels")
    if not fits(trained.rest, _Kept) or len(labels or ()) != trained.classes:
        raise RunError(
            f"{path} was made by an older version, which did not keep all that predicting needs; "
            f"its network alone: lieaugmenter.analysis.models.load_model"
        )
    tensors, _ = read_tensors(path / _ELEMENTS)
    words = trained.parameters.get("action"), trained.parameters.get("output")
    try:
        action = make_action(str(words[0]), trained.sample_shape[-1])
        output = make_output(str(words[1]), action)
    except ValueError:
        raise RunError(
            f"{path}: its action or output is one of your own ({in_short(words, 60)}), which a run "
            f"folder does not hold; keep the fitted estimator, for example with joblib"
        ) from None
    matrices = _checked_matrices(path, tensors, (trained.rest["views"], action.dim, action.dim))
    module = FrozenPredictor(
        trained.network,
        matrices,
        action=action,
        output=output,
        x_scale=trained.x_scale,
        y_scale=trained.y_scale,
        y_shift=trained.y_shift,
        classes=trained.classes,
    )
    return RunPredictor(module, labels, trained.sample_shape)


def _checked_matrices(path: Path, tensors: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    matrices = tensors.get("matrices")
    if matrices is None or tuple(matrices.shape) != shape or not matrices.is_floating_point():
        found = None if matrices is None else tuple(matrices.shape)
        raise RunError(f"{path / _ELEMENTS}: matrices of shape {shape} are expected, found {found}")
    matrices = matrices.float()
    singular = torch.linalg.inv_ex(matrices).info.any()
    if bool(singular) or not bool(matrices.isfinite().all()):
        raise RunError(f"{path / _ELEMENTS}: some matrices have no inverse")
    return matrices


def save_program(module: FrozenPredictor, sample_shape: Sequence[int], path: str | Path) -> Path:
    """Write a predictor as a program of ``torch.export``, which needs torch alone to be used.

    ``torch.export.load("predictor.pt2").module()`` maps (n, …) to (n, …) for any n ≥ 1.

    Parameters
    ----------
    module
        From `Predictor.frozen` or `load_predictor`.
    sample_shape
        Of one sample.
    path
        Of the file; its ending is .pt2 unless given.
    """
    path = Path(path)
    path = path if path.suffix else path.with_suffix(".pt2")
    # Two samples: a size of one would be taken for one that never changes.
    example = torch.zeros(2, *sample_shape, device=module.matrices.device)
    batch = torch.export.Dim("batch", min=1)
    with torch.no_grad():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: batch},))
    content = io.BytesIO()
    torch.export.save(program, content)
    write_atomically(path, content.getvalue())
    return path
