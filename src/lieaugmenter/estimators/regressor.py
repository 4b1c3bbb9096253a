"""The estimator of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from torch import Tensor

from lieaugmenter.data.checkup import Survey, non_finite_message
from lieaugmenter.estimators.base import SymmetryEstimator
from lieaugmenter.estimators.inputs import check_same_length, numeric_target
from lieaugmenter.learning.streams import as_stream
from lieaugmenter.report.findings import Findings


class SymmetryRegressor(RegressorMixin, SymmetryEstimator):
    """Find the continuous symmetry of a regression task, and a predictor that respects it.

    Parameters
    ----------
    network
        ``"auto"`` (an MLP, or a CNN for images), ``"mlp"``, ``"cnn"``, a module (copied), or a
        function of (in_shape, out_shape) that makes one.
    action
        How elements move X: ``"vector"`` (N, d), ``"points"`` (N, n, d), ``"affine"``,
        ``"fourvector"``, ``"image"`` (N, C, H, W), or an `Action`.
    output
        How they move y: ``"invariant"``, ``"same"`` (like X), ``"vector"`` (turned and stretched
        with the space, but not translated: forces, a dipole), or an `Action`.
    n_generators
        Number of generators to look for; they begin where a few plain networks change least (on
        images, streams, an integer grid and more than 16 numbers at the paper's constant) and are
        learned with the predictor. ``"auto"`` finds out how many there are, none included:
        two teams of predictors are trained on halves of the training data, held-out data decide
        (see `discovery`), and the predictor is then trained with what was certified.
    blocks, mask
        Which features may mix: sizes of blocks along the diagonal, or a (d, d) mask.
    hidden
        Widths of the hidden layers of the MLP.
    n_views
        Transformed copies of each sample, in training and in averaged prediction. Held-out data
        decides whether `predict` averages.
    range, sampler, warmup
        Largest coefficient (the action's usual one unless given), its law, and the fraction of
        training over which it grows (unless given 0.1, of images 0.6): as much longer as it is
        wider than usual, see `warmup_share`.
    objective
        Weights of the terms, see `Objective`.
    scale
        Divide X by one number, its root mean square, and standardise a y that does not move.
    epochs
        Length of training; unless given 50, or as many as 1,500 steps take.
    batch_size, lr, schedule, precision
        Of the training, see `fit`.
    validation
        Fraction of the samples held out for the verdict; copies of an input are one sample.
    n_seeds
        Training runs from different seeds; the best on held-out data predicts, and their spans
        are compared.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``.
    random_state
        Seed, for results that repeat.
    run_directory
        Folder to keep the run in: checkpoints, metrics, results.
    feature_names
        Names of the columns.
    verbose
        1 shows a progress bar and warns of what looks odd in the data.

    Attributes
    ----------
    verdict_
        The `Verdict`: outcome, defect, and what they rest on.
    learned_
        The generators before they were made exact, (c, d, d); `generators_` where they were not.
    generators_
        (c, d, d) in the units of the data.
    symmetries_
        The table that ``print(model)`` shows, a list of rows.
    predictor_, network_, augmenter_, history_, coef_range_, seed_agreement_
        The parts.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.hypot(X[:, 0], X[:, 1])
    >>> model = SymmetryRegressor(hidden=(32, 32), epochs=3, random_state=0).fit(X, y)
    >>> model.generators_.shape, model.predict(X[:5]).shape
    ((1, 2, 2), (5,))
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        resume: bool = False,
        findings: Callable[[Self], Findings] | None = None,
    ) -> Self:
        """Find the symmetry of y as a function of X.

        Parameters
        ----------
        X
            Inputs, (N, …). Or data that do not fit into memory, as pairs (x, y): a `Stream`, such
            as `stream_data` makes of a file, a Dataset or a DataLoader; a random part of
            at most 20,000 samples is then held out.
        y
            Targets, (N,) or (N, m), like X for ``output="same"``, (N, d) or (N, …, d) for
            ``output="vector"``; none for a stream.
        resume
            Continue the run in `run_directory`: the same data, parameters and versions.
        findings
            What to keep in `run_directory` about the fitted model, such as
            ``lambda model: model.findings(title="Mine")``; ``model.findings()`` unless given.
        """
        stream = as_stream(X)
        if stream is not None:
            return self._fit_stream(stream, y, resume=resume, findings=findings)
        x = self._validated_x(X, reset=True)
        target = numeric_target(self, y)
        check_same_length(x, target)
        message = non_finite_message(target, None, "y")
        if message:
            raise ValueError(message)
        self._one_dimensional = target.ndim == 1
        return self._fit(x, target, classes=0, resume=resume, findings=findings)

    def _look_at_targets(self, survey: Survey, words: np.ndarray | None) -> int:
        if words is not None:
            raise ValueError("y holds words; for labels use SymmetryClassifier")
        self._one_dimensional = survey.y_shape == ()
        return 0

    def _encoded(self, y: Tensor) -> Tensor:
        return y.float()

    def predict(self, X: Any, views: int | None = None) -> np.ndarray:
        """Predictions in the way that did better on held-out data, averaged or direct.

        Parameters
        ----------
        X
            Inputs.
        views
            Elements to average over, whatever did better; 0 for the direct prediction.
        """
        values = self._predict_values(X, views)
        return values.reshape(len(values)) if self._one_dimensional else values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions, the mean over all numbers of an output.

        Parameters
        ----------
        X, y
            Inputs and targets, as for `fit`.
        sample_weight
            Weights of the samples.
        """
        # scikit-learn's own score knows outputs of one axis only; points have two.
        expected, predicted = (
            values.reshape(len(values), -1) if values.ndim > 2 else values
            for values in (np.asarray(y), self.predict(X))
        )
        return float(r2_score(expected, predicted, sample_weight=sample_weight))
