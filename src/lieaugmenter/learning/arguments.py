"""What `fit` and `fit_ensemble` are given: checked before anything is made of it.

Numbers become Python's own: those of NumPy could not be written into a checkpoint.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from torch import Tensor

from lieaugmenter.learning.optimizer import SCHEDULES

# The order of an epoch is seeded with about a million times as much, and torch takes 64 bits.
LARGEST_SEED = 2**43


def whole_number(name: str, value: object) -> int:
    """A whole number of any kind; a TypeError with its name for anything else."""
    if not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number")
    return int(value)


def length_of_training(epochs: int, batch_size: int, lr: float) -> tuple[int, int, float]:
    """Epochs, batch size and learning rate, all of them positive.

    Examples
    --------
    >>> length_of_training(0, 64, 1e-3)
    Traceback (most recent call last):
        ...
    ValueError: epochs=0, batch_size=64, lr=0.001: all must be positive
    """
    epochs, batch_size = whole_number("epochs", epochs), whole_number("batch_size", batch_size)
    lr = float(lr)
    if epochs < 1 or batch_size < 1 or not lr > 0:
        raise ValueError(f"epochs={epochs}, batch_size={batch_size}, lr={lr}: all must be positive")
    return epochs, batch_size, lr


def seed_of_training(seed: int) -> int:
    """A seed from which the orders of all epochs can be made."""
    seed = whole_number("seed", seed)
    if abs(seed) > LARGEST_SEED:
        raise ValueError(f"seed={seed}: give one between -2**43 and 2**43")
    return seed


def check_schedule(schedule: str) -> None:
    """Raise ValueError for a name that is not in `SCHEDULES`."""
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; choose from {', '.join(SCHEDULES)}")


def check_pair(name: str, data: Any) -> None:
    """Raise TypeError for a pair (x, y) whose labels are no tensor."""
    _, y = data
    if not isinstance(y, Tensor):
        raise TypeError(f"y of {name} is a {type(y).__name__}; pass a tensor, torch.as_tensor(y)")
