"""Evaluation mode, for whoever asks a network questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from torch import nn


@contextmanager
def evaluating(*models: object) -> Iterator[None]:
    """Evaluation mode for the time of a block; each module gets its own mode back.

    In training mode batch norm mixes samples and changes its statistics, and dropout is random.

    Parameters
    ----------
    models
        Modules; what is no module is left alone.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    >>> with evaluating(model):
    ...     print(model.training)
    False
    >>> model.training, model[1].training
    (True, False)
    """
    found = [one.modules() for one in models if isinstance(one, nn.Module)]
    # Frozen TorchScript has no mode any more.
    modules = [module for module in chain(*found) if hasattr(module, "training")]
    modes = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
