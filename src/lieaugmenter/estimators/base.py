"""What the regressor and the classifier share: how they are fitted and used."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lieaugmenter.analysis.verdict import quality_of
from lieaugmenter.data.checkup import Survey, examine
from lieaugmenter.estimators.building import Given, build
from lieaugmenter.estimators.fitted import Fitted
from lieaugmenter.estimators.folders import first_seed, open_run
from lieaugmenter.estimators.inputs import (
    have_names,
    may_mix_freely,
    names_of_columns,
    validated_x,
    warn_of_oddities,
    warn_of_vectors_as_points,
)
from lieaugmenter.estimators.judging import (
    agreement,
    in_units_of_data,
    judge,
    seed_rows,
    table_of_many,
    table_of_one,
)
from lieaugmenter.estimators.settings import check_settings
from lieaugmenter.estimators.task import Task, read_once, task_of_arrays, task_of_stream
from lieaugmenter.estimators.training import Lesson
from lieaugmenter.estimators.words import verdict_with_names
from lieaugmenter.export.predictor import save_predictor
from lieaugmenter.learning.streams import Stream
from lieaugmenter.processes import from_first
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import RunFolder

# Held-out samples that are kept to be tried in the report.
_TRIED_SAMPLES = 64


class SymmetryEstimator(Fitted):
    """What the regressor and the classifier share; see `SymmetryRegressor` for the parameters."""

    def _validated_x(self, x: Any, *, reset: bool) -> np.ndarray:
        checked = validated_x(self, x, reset=reset)
        if not reset and checked.shape[1:] != self.sample_shape_:
            raise ValueError(
                f"X has samples of shape {checked.shape[1:]}, but {type(self).__name__} was "
                f"fitted on {self.sample_shape_}"
            )
        return checked

    # -- fitting ------------------------------------------------------------------------------

    def _fit(
        self,
        x: np.ndarray,
        y: np.ndarray,
        *,
        classes: int,
        resume: bool,
        findings: Callable[[Self], Findings] | None,
    ) -> Self:
        check_settings(self, x.shape, y.shape)
        self.sample_shape_ = x.shape[1:]
        if self.verbose:
            names = names_of_columns(self, x.shape)
            warn_of_oddities(self, examine(x, y, names, look_at_rank=may_mix_freely(self)))
            warn_of_vectors_as_points(self, x, y)
        seed = first_seed(self, resume)
        task = task_of_arrays(self, x, y, classes=classes, seed=seed)
        return self._fit_task(task, seed, resume, findings)

    def _fit_stream(
        self,
        stream: Stream,
        y: Any,
        *,
        resume: bool,
        findings: Callable[[Self], Findings] | None,
    ) -> Self:
        """Fit on pairs (x, y) that are read piece by piece; labels are whole numbers from 0 on."""
        if y is not None:
            raise ValueError("X is a stream of pairs (x, y), so that y must be left out")
        seed = first_seed(self, resume)
        reading = read_once(stream, seed, self.feature_names)
        survey = reading.survey
        classes = self._look_at_targets(survey, getattr(stream, "labels", None))
        check_settings(self, (survey.count, *survey.sample_shape), (survey.count, *survey.y_shape))
        held = reading.held_out(self.validation)
        # Sets what scikit-learn wants to know about X, and looks at its shape.
        self._validated_x(reading.x.numpy(), reset=True)
        self.sample_shape_ = survey.sample_shape
        if self.verbose:
            names = names_of_columns(self, tuple(reading.x.shape))
            warn_of_oddities(self, survey.notes(names, look_at_rank=may_mix_freely(self)))
        task = task_of_stream(
            self, stream, reading, self._encoded, held=held, classes=classes, seed=seed
        )
        return self._fit_task(task, seed, resume, findings)

    @abstractmethod
    def _look_at_targets(self, survey: Survey, words: np.ndarray | None) -> int:
        """Take notice of the targets of a stream; the number of classes, 0 for numbers."""

    @abstractmethod
    def _encoded(self, y: Tensor) -> Tensor:
        """Targets of a stream as the network learns them."""

    def _fit_task(
        self,
        task: Task,
        seed: int,
        resume: bool,
        findings: Callable[[Self], Findings] | None,
    ) -> Self:
        # Built once before anything is written: a mistake in the settings leaves no folder behind.
        build(self, task, seed)
        if task.constant:
            raise ValueError("y is constant: there is nothing to learn from it")
        begun = time.monotonic()
        directory = self.run_directory
        with nullcontext() if directory is None else RunFolder(directory).alone():
            run = open_run(self, task.data, seed=seed, resume=resume)
            self._learn(Lesson(self, task, seed, run, resume))
            self._seconds = time.monotonic() - begun
            if run is not None:
                (self.findings() if findings is None else findings(self)).save(run)
                self.run_directory_ = str(run.path)
        return self

    def _learn(self, lesson: Lesson) -> None:
        """Count generators, train and judge; what is trained goes to the run folder."""
        task, seed, run = lesson.task, lesson.seed, lesson.run
        discovery = lesson.discover() if self.n_generators == "auto" else None
        trained = lesson.train_seeds(None if discovery is None else Given.by(discovery))
        best, spans = trained.best, trained.spans()
        loss = trained.losses[best]
        self.predictor_, self.history_ = trained.predictors[best], trained.histories[best]
        self.network_, self.augmenter_ = self.predictor_.network, self.predictor_.augmenter
        self.generators_ = self.predictor_.generators().numpy()
        self.learned_ = self.generators_
        x, y = task.held_out
        self._quality = quality_of(self.predictor_.predict(x), y)
        count = len(self.generators_)
        ranges = self.augmenter_.sampler.ranges().detach()
        self.coef_range_ = ranges.expand(count).cpu().tolist()
        self.seed_agreement_ = agreement(spans)
        self._seeds = seed_rows(spans, trained.losses)
        if run is not None:
            labels = getattr(self, "classes_", None)
            save_predictor(run, self.predictor_, None if labels is None else labels.tolist())
        if discovery is None:
            self.dimensions_ = None
            self.verdict_, self.identity_ = judge(
                self.predictor_, *task.held_out, n_seeds=self.n_seeds, seed=seed
            )
            self.symmetries_ = table_of_one(
                self.verdict_, chosen=count, loss=loss, agreement=self.seed_agreement_
            )
        else:
            found = from_first(discovery.found.cpu())
            self.learned_ = self.predictor_.in_units_of_data(found).numpy()
            self.dimensions_ = discovery.evidence.dimensions
            self.verdict_ = discovery.verdict
            self.identity_ = in_units_of_data(self.predictor_, discovery.identity)
            losses = {0: lesson.plain_loss() if count else loss, count: loss}
            self.symmetries_ = table_of_many(discovery.evidence, chosen=count, losses=losses)
        if have_names(self):
            self.verdict_ = verdict_with_names(self.verdict_, self._axis_names())
        self.n_samples_ = task.n_samples
        self._data = task.data
        self._tried = tuple(data[:_TRIED_SAMPLES].clone() for data in task.held_out)
        if run is not None and self.n_seeds > 1:
            run.write_metrics(self.history_.records)

    # -- using --------------------------------------------------------------------------------

    def augment(self, X: Any, random_state: int = 0) -> np.ndarray:
        """Transformed copies of samples by elements of the learned symmetry.

        Parameters
        ----------
        X
            Samples, (n, …).
        random_state
            Seed of the elements.

        Returns
        -------
        ndarray
            (n, n_views, …).
        """
        check_is_fitted(self, "verdict_")
        x = torch.from_numpy(self._validated_x(X, reset=False)).float()
        device = self.predictor_.y_scale.device
        rng = torch.Generator(device=device).manual_seed(random_state)
        with torch.no_grad():
            views = self.augmenter_.views(self.predictor_.scale_x(x.to(device)), rng)
        return (views * self.predictor_.x_scale).cpu().numpy()

    def _predict_values(self, X: Any, views: int | None) -> np.ndarray:
        check_is_fitted(self, "verdict_")
        if views is not None and (not isinstance(views, Integral) or views < 0):
            raise ValueError(
                f"views={views!r}: give how many elements to average over, 0 for the direct "
                f"prediction, or None for what did better on held-out data"
            )
        x = torch.from_numpy(self._validated_x(X, reset=False)).float()
        return self.predictor_.predict(x, views=views).double().numpy()
