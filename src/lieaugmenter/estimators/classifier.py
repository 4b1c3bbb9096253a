"""The estimator of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from torch import Tensor

from lieaugmenter.data.checkup import Survey
from lieaugmenter.estimators.base import SymmetryEstimator
from lieaugmenter.estimators.inputs import (
    check_same_length,
    refuse_missing_labels,
    without_column,
)
from lieaugmenter.estimators.settings import labels_move
from lieaugmenter.learning.streams import as_stream
from lieaugmenter.report.findings import Findings


class SymmetryClassifier(ClassifierMixin, SymmetryEstimator):
    """Find the continuous symmetry of a classification task, and a classifier that respects it.

    The parameters and attributes are those of `SymmetryRegressor`; labels never move, so `output`
    must stay ``"invariant"``. Adds ``classes_``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(np.hypot(X[:, 0], X[:, 1]) > 1, "out", "in")
    >>> model = SymmetryClassifier(hidden=(32, 32), epochs=3, random_state=0).fit(X, y)
    >>> model.classes_.tolist(), model.predict_proba(X[:5]).shape
    (['in', 'out'], (5, 2))
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        resume: bool = False,
        findings: Callable[[Self], Findings] | None = None,
    ) -> Self:
        """Find the symmetry of the labels y as a function of X.

        Parameters
        ----------
        X
            Inputs, (N, …), or pairs (x, y) that do not fit into memory, as for
            `SymmetryRegressor.fit`; labels are then whole numbers.
        y
            Labels, (N,): integers or words; none for a stream.
        resume, findings
            As for `SymmetryRegressor.fit`.
        """
        if labels_move(self):
            raise ValueError("a classifier's labels do not move: output must be 'invariant'")
        stream = as_stream(X)
        if stream is not None:
            return self._fit_stream(stream, y, resume=resume, findings=findings)
        x = self._validated_x(X, reset=True)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        refuse_missing_labels(np.asarray(y))
        check_classification_targets(y)
        labels = without_column(np.asarray(y))
        if labels.ndim != 1:
            raise ValueError(f"y has shape {labels.shape}; labels must be (N,)")
        check_same_length(x, labels)
        self.classes_ = unique_labels(labels)
        classes = self._checked_number_of_classes()
        numbers = np.searchsorted(self.classes_, labels)
        return self._fit(x, numbers, classes=classes, resume=resume, findings=findings)

    def _look_at_targets(self, survey: Survey, words: np.ndarray | None) -> int:
        codes = survey.labels
        if codes is None or codes.dtype.kind not in "biu":
            raise ValueError(
                f"y has targets of shape {survey.y_shape} that are no classes; labels of a stream "
                f"must be whole numbers, (N,)"
            )
        self._codes, self.classes_ = codes, codes if words is None else words[codes]
        return self._checked_number_of_classes()

    def _encoded(self, y: Tensor) -> Tensor:
        return torch.from_numpy(np.searchsorted(self._codes, y.numpy()))

    def _checked_number_of_classes(self) -> int:
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only ({self.classes_[0]}); a classifier needs two")
        return len(self.classes_)

    def predict_proba(self, X: Any, views: int | None = None) -> np.ndarray:
        """Probabilities of the classes; `views` as in `SymmetryRegressor.predict`."""
        return self._predict_values(X, views)

    def predict_log_proba(self, X: Any, views: int | None = None) -> np.ndarray:
        """Logarithms of `predict_proba`; -inf where a probability is 0 in single precision."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, views))

    def predict(self, X: Any, views: int | None = None) -> np.ndarray:
        """The likeliest label of each sample."""
        likeliest = self.predict_proba(X, views).argmax(1)
        return self.classes_[likeliest]
