"""How an estimator learns: which generators there are, where they begin, and every seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.analysis.polarization import entries
from lieaugmenter.discovery import TEAM_WIDTHS, Discovery, discover, gather, known, team_network
from lieaugmenter.estimators.building import (
    EPOCHS,
    Given,
    build,
    build_network,
    epochs_of,
    untrained,
)
from lieaugmenter.estimators.settings import Settings
from lieaugmenter.estimators.task import Task, scaled
from lieaugmenter.learning import fit
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.learning.streams import Stream
from lieaugmenter.learning.trainer import History
from lieaugmenter.nets import MLP
from lieaugmenter.processes import from_first
from lieaugmenter.runs import RunFolder

# Epochs of the teams that look for symmetries for each epoch that is asked for. With fewer steps
# their derivatives were good enough for fewer tasks of the zoo.
_TEAM_EPOCHS = 4
# Networks that say where a given number of generators begin, and the largest matrices for which
# they do: with 32 rows it would take a minute.
_START_NETWORKS = 4
_LARGEST_START = 16
# Networks other than those, such as a user's own or those of images, take longer.
_OTHER_TEAM: dict[str, Any] = {"members": 1, "most_steps": 1500}


@dataclass(frozen=True)
class Trained:
    """A training run for each seed: predictors, histories, and losses on held-out data."""

    predictors: list[Predictor]
    histories: list[History]
    losses: list[float]

    @property
    def best(self) -> int:
        """The run that predicts held-out data best."""
        # A loss that is not a number must not win.
        return int(np.argmin(np.nan_to_num(self.losses, nan=np.inf)))

    def spans(self) -> list[Tensor]:
        """The generators of each run, in the units of the data."""
        return [predictor.generators() for predictor in self.predictors]


@dataclass(frozen=True)
class Lesson:
    """A task to be learned as the settings say, anew or from where a run folder stands."""

    settings: Settings
    task: Task
    seed: int
    run: RunFolder | None
    resume: bool

    def discover(self) -> Discovery:
        """Which generators there are, from two teams of predictors, and how sure that is."""
        settings, task = self.settings, self.task
        predictor = build(settings, task, self.seed)
        smooth = settings.network in ("auto", "mlp") and not isinstance(task.action, ImageAction)

        def make_network() -> nn.Module:
            if not smooth:
                return untrained(build_network(settings, task))
            return team_network(*task.shapes, task.classes)

        evidence = gather(
            make_network,
            task.scaled_train(predictor),
            scaled(predictor, task.held_out),
            action=task.action,
            output=task.output,
            candidates=entries(predictor.augmenter.basis.mask),
            classes=task.classes,
            epochs=_TEAM_EPOCHS * (settings.epochs or EPOCHS),
            batch_size=settings.batch_size,
            **({} if smooth else dict(_OTHER_TEAM, lr=settings.lr)),
            device=settings.device,
            seed=self.seed,
            progress=bool(settings.verbose),
            run=None if self.run is None else self.run.part("teams"),
            resume=self.resume,
        )
        largest = task.action.usual_range if settings.range is None else settings.range
        return discover(evidence, largest=largest, labels=bool(task.classes))

    def train_seeds(self, given: Given | None) -> Trained:
        """All training runs, with what is given or from where each begins."""
        trained = []
        for number in np.arange(self.settings.n_seeds).tolist():
            own, folder = self.seed + number, self._folder_of_seed(number)
            begun = self._start(own, folder) if given is None else given
            of_seed = f", seed {number + 1} of {self.settings.n_seeds}"
            told = "training" + (of_seed if self.settings.n_seeds > 1 else "")
            trained.append(self._train(own, folder, begun, told))
        predictors = [predictor for predictor, _ in trained]
        losses = [predictor.choose_inference(*self.task.held_out)[1] for predictor in predictors]
        return Trained(predictors, [history for _, history in trained], losses)

    def plain_loss(self) -> float:
        """What the same network comes to without augmentation, on held-out data."""
        nothing = Given(self.task.action.mask.expand(0, -1, -1), None)
        part = None if self.run is None else self.run.part("plain")
        predictor, _ = self._train(self.seed, part, nothing, "training without it, to compare")
        return predictor.loss(*self.task.held_out)

    def _folder_of_seed(self, number: int) -> RunFolder | None:
        if self.run is None or self.settings.n_seeds == 1:
            return self.run
        return self.run.part("seeds", str(number))

    def _start(self, seed: int, run: RunFolder | None) -> Given | None:
        """What a given number of generators begin from: the likeliest by networks' derivatives.

        None where these say nothing, because elements are far from the identity or pixels move; and
        where they would take too long.
        """
        settings, task = self.settings, self.task
        derivable = settings.sampler != "integer-grid" and not isinstance(task.action, ImageAction)
        if not derivable or isinstance(task.train, Stream) or task.action.dim > _LARGEST_START:
            return None
        predictor = build(settings, task, seed)
        basis = predictor.augmenter.basis
        found = known(
            lambda: MLP(*task.shapes, hidden=TEAM_WIDTHS, smooth=True),
            scaled(predictor, task.train),
            basis.n_generators,
            action=task.action,
            output=task.output,
            candidates=entries(basis.mask),
            classes=task.classes,
            members=_START_NETWORKS,
            epochs=epochs_of(settings, task),
            batch_size=settings.batch_size,
            device=settings.device,
            seed=seed,
            progress=bool(settings.verbose),
            run=None if run is None else run.part("start"),
            resume=self.resume,
        )
        start = from_first(found.cpu())
        # Fewer than were asked for move the samples at all.
        return Given(start, None, fixed=False) if len(start) == basis.n_generators else None

    def _train(
        self, seed: int, run: RunFolder | None, given: Given | None, told: str
    ) -> tuple[Predictor, History]:
        settings, task = self.settings, self.task
        predictor = build(settings, task, seed, given)
        history = fit(
            predictor.network,
            # Without a generator there is nothing to augment with.
            predictor.augmenter if len(predictor.augmenter.generators) else None,
            task.scaled_train(predictor),
            validation=scaled(predictor, task.held_out),
            epochs=epochs_of(settings, task),
            batch_size=settings.batch_size,
            lr=settings.lr,
            schedule=settings.schedule,
            precision=settings.precision,
            device=settings.device,
            seed=seed,
            run=run,
            resume=self.resume,
            progress=told if settings.verbose else False,
        )
        return predictor.to(pick_device(settings.device)).eval(), history
