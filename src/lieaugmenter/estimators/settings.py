"""What an estimator is told: parameters, which it keeps as they were given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from lieaugmenter.actions import Action, InvariantAction
from lieaugmenter.actions.words import words_for
from lieaugmenter.learning import Objective
from lieaugmenter.runs import in_short

P = ParamSpec("P")
# Actions on the numbers of the last axis of X, which are coordinates of one space.
_ON_COORDINATES = ("affine", "fourvector", "points", "vector")


def _knowing_its_names(init: Callable[P, None]) -> Callable[P, None]:
    """Answer a wrong name of a parameter with the right ones."""

    @functools.wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        known = [name for name in inspect.signature(init).parameters if name != "self"]
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            raise TypeError(
                f"unknown parameter {unknown!r} of {type(args[0]).__name__}; choose from "
                f"{', '.join(sorted(known))}"
            )
        init(*args, **given)

    return checked


class Settings(BaseEstimator):
    """The parameters of both estimators; see `SymmetryRegressor` for what they mean."""

    @_knowing_its_names
    def __init__(
        self,
        network: str | nn.Module | Callable[..., nn.Module] = "auto",
        *,
        action: str | Action = "vector",
        output: str | Action = "invariant",
        n_generators: int | str = 1,
        blocks: Sequence[int] | None = None,
        mask: Any = None,
        hidden: Sequence[int] = (128, 128, 128),
        n_views: int = 10,
        range: float | None = None,
        sampler: str = "uniform",
        warmup: float | None = None,
        objective: Objective | None = None,
        scale: bool = True,
        epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 1e-3,
        schedule: str = "cosine",
        precision: str = "float32",
        validation: float = 0.2,
        n_seeds: int = 1,
        device: str = "auto",
        random_state: Any = None,
        run_directory: str | Path | None = None,
        feature_names: Sequence[str] | None = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.action = action
        self.output = output
        self.n_generators = n_generators
        self.blocks = blocks
        self.mask = mask
        self.hidden = hidden
        self.n_views = n_views
        self.range = range
        self.sampler = sampler
        self.warmup = warmup
        self.objective = objective
        self.scale = scale
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.schedule = schedule
        self.precision = precision
        self.validation = validation
        self.n_seeds = n_seeds
        self.device = device
        self.random_state = random_state
        self.run_directory = run_directory
        self.feature_names = feature_names
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.three_d_array = True
        return tags


def check_settings(settings: Settings, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    """Refuse what cannot be meant for data of these shapes, the number of samples included."""
    given = settings.n_generators
    if given != "auto" and (not isinstance(given, int | np.integer) or given < 1):
        raise ValueError(f"n_generators={given!r}: give a number of at least 1, or 'auto'")
    counts = ("epochs", "batch_size", "n_views", "n_seeds")
    for name in counts:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, Integral):
            raise ValueError(f"{name}={value!r}: give a whole number")
    if settings.epochs is not None and settings.epochs < 1:
        raise ValueError(f"epochs={settings.epochs}: at least one is needed")
    if settings.batch_size < 1:
        raise ValueError(f"batch_size={settings.batch_size}: a step needs at least one sample")
    if not _are_widths(settings.hidden):
        raise ValueError(
            f"hidden={in_short(settings.hidden)}: give the widths of the hidden layers, whole "
            f"numbers of at least 1, such as hidden=(128, 128)"
        )
    if not isinstance(settings.lr, Real) or not 0 < settings.lr < np.inf:
        raise ValueError(f"lr={in_short(settings.lr)}: give a number above 0, such as 0.001")
    if not isinstance(settings.validation, Real) or not 0 < settings.validation < 1:
        raise ValueError(
            f"validation={in_short(settings.validation, 40)}: give a fraction between 0 and 1, the "
            f"share of the samples of X that is held out"
        )
    if settings.n_seeds < 1:
        raise ValueError(f"n_seeds={settings.n_seeds}: at least one training run is needed")
    if settings.output == "same" and y_shape != x_shape:
        raise ValueError(
            f"output='same' needs y of the shape of X, {x_shape}, to move like it; y has shape "
            f"{y_shape}. For a scalar target use output='invariant', for vectors of the space that "
            f"X lies in, such as a dipole, output='vector'"
        )
    if settings.output == "vector" and settings.action in _ON_COORDINATES:
        _check_vectors(x_shape, y_shape)


def _are_widths(hidden: Any) -> bool:
    if isinstance(hidden, str) or not isinstance(hidden, Sequence | np.ndarray):
        return False
    return all(isinstance(width, Integral) and int(width) >= 1 for width in hidden)


def _check_vectors(x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    """Refuse targets that are no vectors of the space that X lies in."""
    d = x_shape[-1]
    if len(y_shape) > 1 and y_shape[-1] == d:
        return
    meant = ""
    if len(y_shape) == 1:
        meant = ". For a scalar target use output='invariant'"
    elif len(x_shape) == 2:
        meant = (
            f". A row of a table is one point or vector of all its {d} columns; several points "
            f"need X of shape (N, points, coordinates), which an .npz can hold"
        )
    raise ValueError(
        f"y has shape {y_shape}. output='vector' expects (N, {d}) or (N, …, {d}), vectors of the "
        f"space that X lies in{meant}"
    )


def labels_move(settings: Settings) -> bool:
    """Whether elements move the targets at all."""
    return not (isinstance(settings.output, InvariantAction) or settings.output == "invariant")


def recorded(settings: Settings) -> dict[str, Any]:
    """Settings as JSON can hold them; actions as words, modules and functions described."""

    def plain(value: Any) -> Any:
        if isinstance(value, Objective):
            return asdict(value)
        if isinstance(value, np.ndarray | Tensor):
            return value.tolist()
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if callable(value) and not isinstance(value, nn.Module):
            # By name: an address would differ in the process that resumes.
            return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
        return str(value)

    # Where the run lies and how much it talks does not change what it is.
    left_out = ("run_directory", "verbose")
    parameters = settings.get_params(deep=False)
    action, output = words_for(settings.action, settings.output)
    parameters |= {"action": action, "output": output}
    return {name: plain(value) for name, value in parameters.items() if name not in left_out}
