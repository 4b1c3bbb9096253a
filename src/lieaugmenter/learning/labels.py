"""Labels beside predictions: their type and shape, and those that are none."""

from __future__ import annotations

import torch
from torch import Tensor

from lieaugmenter.learning.averaging import shaped_like

# What torch's cross-entropy does not count.
_NO_LABEL = -100


def matched(prediction: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A prediction and its labels as losses compare them: one shape, or logits and whole numbers.

    Parameters
    ----------
    prediction
        Values, or a number for each class.
    y
        Labels. Floating-point ones are regressed; all others, of whatever type, are classes.

    Examples
    --------
    >>> values, _ = matched(torch.zeros(3, 1), torch.zeros(3))
    >>> _, classes = matched(torch.zeros(3, 2), torch.tensor([True, False, True]))
    >>> tuple(values.shape), classes.dtype
    ((3,), torch.int64)
    """
    if y.is_floating_point():
        return shaped_like(prediction, y), y
    y = y.long()
    check_labels(prediction, y)
    return prediction, y


def check_labels(logits: Tensor, y: Tensor) -> None:
    """Refuse labels for which there is no logit; not on a GPU, which would have to be waited for.

    Nor while torch compiles, whose graph would end here. Those that cross-entropy leaves out, -100,
    are no labels.
    """
    if y.is_cuda or torch.compiler.is_compiling() or logits.ndim < 2:
        return
    labels = y[y != _NO_LABEL]
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise ValueError(
            f"y holds labels from {int(labels.min())} to {int(labels.max())}, and the model "
            f"returns {logits.shape[1]} logits, for labels from 0 to {logits.shape[1] - 1}"
        )


def check_all_count(y: Tensor) -> None:
    """Refuse labels of -100 in a batch whose loss is added up from parts.

    Cross-entropy is a mean over the labels that count. Parts are weighed by their samples, and one
    in which no label counts has no mean. A step that is being recorded cannot be asked.
    """
    if y.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    if not y.is_floating_point() and bool((y == _NO_LABEL).any()):
        raise ValueError(
            f"y holds labels of {_NO_LABEL}, which cross-entropy leaves out: a batch with them "
            f"cannot be taken in chunks or shared by processes. Leave these samples out, or train "
            f"in one process without chunk= (with a smaller batch_size where memory is short)"
        )
