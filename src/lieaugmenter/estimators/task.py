"""What an estimator is fitted on: data in two parts, how elements act on them, and scales."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import Action, AffineAction, InvariantAction
from lieaugmenter.actions.words import check_moving_labels, make_action, make_output
from lieaugmenter.data.checkup import Moments, Survey
from lieaugmenter.estimators.settings import Settings
from lieaugmenter.learning.copies import first_alike, two_parts
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.learning.streams import Reservoir, Stream, hashes
from lieaugmenter.lie.units import spread_of
from lieaugmenter.nets import Standardized
from lieaugmenter.runs import fingerprint

# Held-out samples of a stream, at most: they are kept in memory.
_MOST_HELD_OUT = 20_000
# Samples to learn from, or to be judged on, at least.
_LEAST_PART = 2


@dataclass(frozen=True)
class Columns:
    """Mean and spread of each column of a table, (d,), in its own unit."""

    mean: Tensor
    spread: Tensor

    def seen_by(self, network: nn.Module, x_scale: float) -> Standardized:
        """The network with columns of mean 0 and deviation 1, for inputs in units of `x_scale`."""
        return Standardized(network, self.mean / x_scale, self.spread / x_scale)


@dataclass(frozen=True)
class Task:
    """The data of a fit, how elements act on them, and how they are scaled.

    What is held out is in memory; what is trained on may be a stream. `columns` are those of a
    table, None where samples are not single vectors. `data` identifies all of it, `constant` says
    whether all targets are the same number.
    """

    train: tuple[Tensor, Tensor] | Stream
    held_out: tuple[Tensor, Tensor]
    action: Action
    output: Action
    scales: dict[str, Any]
    columns: Columns | None
    classes: int
    n_samples: int
    data: dict[str, Any]
    constant: bool

    @property
    def n_train(self) -> int:
        """Samples to train on."""
        return self.train.count if isinstance(self.train, Stream) else len(self.train[1])

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a sample and of an output."""
        x, y = self.held_out
        out_shape = (self.classes,) if self.classes else tuple(y.shape[1:]) or (1,)
        return tuple(x.shape[1:]), out_shape

    def scaled_train(self, predictor: Predictor) -> tuple[Tensor, Tensor] | Stream:
        """What is trained on, as the network sees it."""
        if isinstance(self.train, Stream):
            return self.train.map(lambda x, y: scaled(predictor, (x, y)))
        return scaled(predictor, self.train)


def scaled(predictor: Predictor, data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Inputs and targets as the network sees them."""
    return predictor.scale_x(data[0]), predictor.scale_y(data[1])


# -- arrays ----------------------------------------------------------------------------------------


def task_of_arrays(
    settings: Settings, x: np.ndarray, y: np.ndarray, *, classes: int, seed: int
) -> Task:
    """The task of arrays that were checked; labels are numbers from 0 on."""
    action = make_action(settings.action, x.shape[-1])
    output = make_output(settings.output, action)
    inputs = torch.from_numpy(np.ascontiguousarray(x)).float()
    targets = torch.from_numpy(np.ascontiguousarray(y))
    targets = targets.long() if classes else targets.float()
    action.check(inputs)
    if not classes:
        check_moving_labels(output, targets)
    train, held_out = _split(inputs, settings.validation, seed)
    sizes = None if classes else _TargetSizes.of_tensor(targets)
    return Task(
        train=(inputs[train], targets[train]),
        held_out=(inputs[held_out], targets[held_out]),
        action=action,
        output=output,
        scales=_scales(settings, _size(inputs), sizes, action, output),
        columns=_columns(inputs[train]) if inputs.ndim == 2 else None,
        classes=classes,
        n_samples=len(inputs),
        data=fingerprint(x, y),
        constant=not classes and bool((targets == targets[0]).all()),
    )


def _split(inputs: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and to hold out: never an input on both sides, and none held out twice."""

    def share(different: int) -> int:
        what = "sample" if different == len(inputs) else "different input"
        return _held_out(different, fraction, what)

    alike = first_alike(inputs)
    held_out, train = two_parts(alike, share, seed)
    # Copies would count as evidence of their own.
    return train, held_out[alike[held_out] == held_out]


def _held_out(n: int, fraction: float, what: str = "sample") -> int:
    """How many of n samples are held out: never so many, or so few, that a part has only one."""
    if n < 2 * _LEAST_PART:
        raise ValueError(
            f"there {f'is 1 {what}' if n == 1 else f'are {n} {what}s'}: at least "
            f"{2 * _LEAST_PART} are needed, to learn from some and be judged on others"
        )
    return min(max(round(n * fraction), _LEAST_PART), n - _LEAST_PART)


# -- streams ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What is known of a stream once all of it was read.

    Attributes
    ----------
    survey
        What there is.
    x, y, keys
        A random part that is kept in memory, in the order of its hashes, and these.
    digest
        What identifies the whole.
    """

    survey: Survey
    x: Tensor
    y: Tensor
    keys: np.ndarray
    digest: dict[str, Any]

    def held_out(self, fraction: float) -> int:
        """How many samples are held out."""
        return min(_held_out(self.survey.count, fraction), len(self.y))

    def beyond(self, key: np.uint64) -> int:
        """How many of all samples have a larger hash than one of those kept, as far as is known.

        Copies of the last that is kept may have been too many to be kept, see `may_lack`.
        """
        return self.survey.count - int((self.keys <= key).sum())

    def may_lack(self, key: np.uint64) -> bool:
        """Whether samples with this hash may be there that are not kept."""
        return bool(key == self.keys[-1]) and len(self.keys) < self.survey.count


def read_once(stream: Stream, seed: int, feature_names: Sequence[str] | None) -> Reading:
    """Read everything once: what there is, a random part to keep, and what identifies it."""
    survey, total = Survey(), 0
    reservoir = Reservoir(_MOST_HELD_OUT, seed=seed)
    for x, y in stream.pieces():
        if not isinstance(x, Tensor):
            raise ValueError(
                f"the stream yields inputs of type {type(x).__name__}; the estimators take one "
                f"tensor (with fit() and an action of your own they may be a dict or tuple)"
            )
        keys = hashes(x, y, seed)
        survey.add(x.numpy(), y.numpy())
        reservoir.add(x, y, keys)
        # A sum, so that the order of reading does not matter.
        total = (total + int(keys.sum(dtype=np.uint64))) % 2**64
    if not survey.count:
        raise ValueError("the stream has no samples: there is nothing to learn from")
    names = None if feature_names is None else list(feature_names)
    for error in survey.errors(names if len(survey.sample_shape) == 1 else None):
        raise ValueError(error.text)
    digest = {
        "sha256": hashlib.sha256(f"{seed} {survey.count} {total}".encode()).hexdigest(),
        "x_shape": [survey.count, *survey.sample_shape],
        "y_shape": [survey.count, *survey.y_shape],
    }
    kept_x, kept_y = reservoir.settle()
    return Reading(survey, kept_x.float(), kept_y, reservoir.keys, digest)


def task_of_stream(
    settings: Settings,
    stream: Stream,
    reading: Reading,
    encoded: Callable[[Tensor], Tensor],
    *,
    held: int,
    classes: int,
    seed: int,
) -> Task:
    """The task of a stream that was read once, of which the first `held` kept are held out.

    `encoded` makes its targets what the network learns.
    """
    survey = reading.survey
    action = make_action(settings.action, survey.sample_shape[-1])
    output = make_output(settings.output, action)
    action.check(reading.x)
    if not classes:
        check_moving_labels(output, reading.y.float())
    sizes = None if classes else _TargetSizes.of(survey.y_moments)
    last = reading.keys[held - 1]
    train = stream.where(lambda keys: keys > last, seed).map(lambda x, y: (x.float(), encoded(y)))
    left = reading.beyond(last)
    if train.count != left and reading.may_lack(last):
        # One more reading, but only where there are copies of just that sample.
        copies = stream.where(lambda keys: keys == last, seed).count
        left -= copies - int((reading.keys == last).sum())
    if train.count != left:
        raise ValueError(
            f"the stream gave {survey.count} samples at first, and when it was read again "
            f"{train.count} beside those that are held out, not {left}: it is read many times, and "
            f"has to give the same samples each time (no random transforms, no iterator that ends)"
        )
    if not left:
        raise ValueError("all samples are alike: there is nothing to learn from them")
    return Task(
        train=train,
        held_out=(reading.x[:held], encoded(reading.y[:held])),
        action=action,
        output=output,
        scales=_scales(settings, survey.x_moments.size, sizes, action, output),
        columns=_columns(reading.x) if reading.x.ndim == 2 else None,
        classes=classes,
        n_samples=survey.count,
        data=reading.digest | {"read": "piece by piece", "held_out": held},
        constant=not classes and survey.y_is_constant,
    )


# -- scales ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TargetSizes:
    """Mean and spread of each target, and the root mean square of all."""

    mean: Tensor
    spread: Tensor
    size: float

    @classmethod
    def of_tensor(cls, targets: Tensor) -> _TargetSizes:
        # In double precision, in which the square of no target is too large.
        exact = targets.double()
        return cls(exact.mean(0).float(), exact.std(0, correction=0).float(), _size(targets))

    @classmethod
    def of(cls, moments: Moments) -> _TargetSizes:
        mean, spread = (torch.as_tensor(v).float() for v in (moments.mean, moments.spread))
        return cls(mean, spread, moments.size)


def _scales(
    settings: Settings, x_size: float, y: _TargetSizes | None, action: Action, output: Action
) -> dict[str, Any]:
    """One number for X. Targets that move share it or have one of their own; others are
    standardised column by column; labels have no size.
    """
    if not settings.scale:
        return {}
    x_scale = 1.0 if isinstance(settings.action, Action) else x_size or 1.0
    if y is None:
        return {"x_scale": x_scale}
    if isinstance(output, InvariantAction):
        spread = torch.where(y.spread > 0, y.spread, torch.ones_like(y.spread))
        return {"x_scale": x_scale, "y_scale": spread, "y_shift": y.mean}
    shared = output is action or isinstance(output, AffineAction)
    return {"x_scale": x_scale, "y_scale": x_scale if shared else y.size or 1.0}


def _columns(x: Float[Tensor, "n d"]) -> Columns:
    return Columns(x.double().mean(0).float(), spread_of(x))


def _size(values: Tensor) -> float:
    size = float(values.double().square().mean().sqrt())
    return size if size > 0 else 1.0
