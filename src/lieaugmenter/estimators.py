"""scikit-learn estimators: fit(X, y) finds the symmetry and the predictor."""

from __future__ import annotations

import copy
import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import DataConversionWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        "the estimators need scikit-learn: pip install 'lieaugmenter[sklearn]'"
    ) from None

from lieaugmenter.actions import Action, AffineAction, ImageAction, InvariantAction
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.identify import LARGEST_NAMED, Identity, identify
from lieaugmenter.analysis.polarization import entries
from lieaugmenter.analysis.verdict import Verdict, assess, defects, quality_of
from lieaugmenter.data.checkup import Moments, Note, Survey, examine, non_finite_message
from lieaugmenter.discovery import (
    SEARCHED,
    TEAM_WIDTHS,
    Discovery,
    Evidence,
    discover,
    gather,
    known,
    team_network,
)
from lieaugmenter.export.manifest import FORMS, Manifest, made_by
from lieaugmenter.learning import LieAugmenter, Objective, fit
from lieaugmenter.learning.augmenter import make_action, make_output
from lieaugmenter.learning.engine import History, pick_device
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.learning.streams import Reservoir, Stream, as_stream, hashes
from lieaugmenter.lie.basis import LARGEST_DIM, is_closed
from lieaugmenter.lie.samplers import warmup_share
from lieaugmenter.nets import CNN, MLP
from lieaugmenter.processes import from_first, number_from_first
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.sweep import sweep
from lieaugmenter.report.trials import departure, ways_to_predict
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    check_same,
    environment,
    fingerprint,
    versions,
    write_tensors,
)

NETWORKS = ("auto", "cnn", "mlp")
# Held-out samples on which the defect is measured; those that are kept to be tried in the report,
# and how many of them are shown there.
_DEFECT_SAMPLES = 1000
_TRIED_SAMPLES = 64
_SHOWN_SAMPLES = 8
# Held-out samples of a stream, at most: they are kept in memory.
_HELD_OUT = 20_000
# Larger generators are looked at in the report, not in a terminal.
_LARGEST_PRINTED = 8
# Length of training unless given: so many epochs, and so many steps, of which a few hundred samples
# would take too few for the generators to settle.
_EPOCHS = 50
_LEAST_STEPS = 1500
# The part of training over which the range grows. Images that are moved far before a network knows
# them teach nothing about the generator: with 5,400 digits three seeds of five missed the rotation
# with 0.15, and found it with 0.6.
_WARMUP, _IMAGE_WARMUP = 0.1, 0.6
# Epochs of the teams that look for symmetries for each epoch that is asked for. With fewer steps
# their derivatives were good enough for fewer tasks of the zoo.
_TEAM_EPOCHS = 4
# Networks that say where a given number of generators begin, and the largest matrices for which
# they do: with 32 rows it would take a minute.
_START_NETWORKS = 4
_LARGEST_START = 16
# Networks other than those, such as a user's own or those of images, take longer.
_OTHER_TEAM: dict[str, Any] = {"members": 1, "most_steps": 1500}
# Dimensions in the table beyond the one that was found.
_ROWS_BEYOND = 3


@dataclass(frozen=True)
class _Task:
    """The data of a fit, how elements act on them, and how they are scaled.

    What is held out is in memory; what is trained on may be a stream. `data` identifies all of it.
    """

    train: tuple[Tensor, Tensor] | Stream
    held_out: tuple[Tensor, Tensor]
    action: Action
    output: Action
    scales: dict[str, Any]
    classes: int
    n_samples: int
    data: dict[str, Any]

    @property
    def n_train(self) -> int:
        return self.train.count if isinstance(self.train, Stream) else len(self.train[1])

    def scaled_train(self, predictor: Predictor) -> tuple[Tensor, Tensor] | Stream:
        if isinstance(self.train, Stream):
            return self.train.map(lambda x, y: _scaled(predictor, (x, y)))
        return _scaled(predictor, self.train)


@dataclass(frozen=True)
class _TargetSizes:
    """Mean and spread of each target, and the root mean square of all."""

    mean: Tensor
    spread: Tensor
    size: float

    @classmethod
    def of(cls, moments: Moments) -> _TargetSizes:
        mean, spread = (torch.as_tensor(v).float() for v in (moments.mean, moments.spread))
        return cls(mean, spread, moments.size)


@dataclass(frozen=True)
class _Given:
    """Generators to train with, (c, d, d), and the range that suits them; or to begin from."""

    generators: Tensor
    range: float | None
    fixed: bool = True

    @classmethod
    def by(cls, discovery: Discovery) -> _Given:
        """What was discovered; by the first process, where there are several."""
        reach = discovery.reach()
        known = from_first(torch.tensor([] if reach is None else [reach]))
        return cls(from_first(discovery.span.cpu()), float(known) if len(known) else None)


class _SymmetryEstimator(BaseEstimator):
    """What the regressor and the classifier share; see `SymmetryRegressor` for the parameters."""

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

    # -- data ---------------------------------------------------------------------------------

    def _validated_x(self, x: Any, *, reset: bool) -> np.ndarray:
        image = self.action == "image" or isinstance(self.action, ImageAction)
        checked = np.asarray(
            validate_data(
                self,
                x,
                reset=reset,
                allow_nd=True,
                ensure_all_finite=False,
                dtype=[np.float32, np.float64],
            )
        )
        message = non_finite_message(checked, self._names(checked) if checked.ndim == 2 else None)
        if message:
            raise ValueError(message)
        if not image and checked.shape[-1] > LARGEST_DIM and not isinstance(self.action, Action):
            raise ValueError(
                f"X has {checked.shape[-1]} features: action='vector' would learn "
                f"{checked.shape[-1] ** 2:,} entries per generator (at most {LARGEST_DIM} features "
                f"are supported). Use action='image' for pixels, or points of a small dimension"
            )
        if not reset and checked.shape[1:] != self.sample_shape_:
            raise ValueError(
                f"X has samples of shape {checked.shape[1:]}, but {type(self).__name__} was "
                f"fitted on {self.sample_shape_}"
            )
        return checked

    def _names(self, x: np.ndarray) -> list[str]:
        given = self.feature_names
        if given is None:
            given = getattr(self, "feature_names_in_", None)
        if given is not None:
            if len(given) != x.shape[-1]:
                raise ValueError(
                    f"feature_names has {len(given)} names, X has {x.shape[-1]} columns"
                )
            return [str(name) for name in given]
        return [f"x{i + 1}" for i in np.arange(x.shape[-1])]

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
        self._check_parameters(x.shape, y.shape)
        self.sample_shape_ = x.shape[1:]
        if self.verbose:
            structured = self.blocks is not None or self.mask is not None
            names = self._names(x) if x.ndim == 2 else None
            self._warn_of_oddities(examine(x, y, names, look_at_rank=not structured))
        seed = self._seed(resume)
        return self._fit_task(self._task(x, y, classes, seed), seed, resume, findings)

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
        seed = self._seed(resume)
        survey, reservoir, digest = self._survey(stream, seed)
        kept_x, kept_y = reservoir.settle()
        kept_x = kept_x.float()
        held = min(round(self.validation * survey.count), len(kept_y))
        if held < 2 or survey.count - held < 2:
            raise ValueError(f"the stream has {survey.count} samples: too few to hold some out")
        classes = self._look_at_targets(survey, getattr(stream, "labels", None))
        self._check_parameters(
            (survey.count, *survey.sample_shape), (survey.count, *survey.y_shape)
        )
        # Sets what scikit-learn wants to know about X, and looks at its shape.
        self._validated_x(kept_x.numpy(), reset=True)
        self.sample_shape_ = survey.sample_shape
        if self.verbose:
            structured = self.blocks is not None or self.mask is not None
            names = self._names(kept_x.numpy()) if kept_x.ndim == 2 else None
            self._warn_of_oddities(survey.notes(names, look_at_rank=not structured))
        action = make_action(self.action, survey.sample_shape[-1])
        output = make_output(self.output, action)
        action.check(kept_x)
        sizes = None if classes else _TargetSizes.of(survey.y_moments)
        last = reservoir.keys[held - 1]
        task = _Task(
            train=stream.where(lambda keys: keys > last, seed).map(
                lambda x, y: (x.float(), self._encoded(y))
            ),
            held_out=(kept_x[:held], self._encoded(kept_y[:held])),
            action=action,
            output=output,
            scales=self._scales(survey.x_moments.size, sizes, action, output),
            classes=classes,
            n_samples=survey.count,
            data=digest | {"read": "piece by piece", "held_out": held},
        )
        return self._fit_task(task, seed, resume, findings)

    def _survey(self, stream: Stream, seed: int) -> tuple[Survey, Reservoir, dict[str, Any]]:
        """Read everything once: what there is, a random part to keep, and what identifies it."""
        survey, total = Survey(), 0
        reservoir = Reservoir(_HELD_OUT, seed=seed)
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
        names = None if self.feature_names is None else list(self.feature_names)
        for error in survey.errors(names if len(survey.sample_shape) == 1 else None):
            raise ValueError(error.text)
        digest = hashlib.sha256(f"{seed} {survey.count} {total}".encode()).hexdigest()
        return (
            survey,
            reservoir,
            {
                "sha256": digest,
                "x_shape": [survey.count, *survey.sample_shape],
                "y_shape": [survey.count, *survey.y_shape],
            },
        )

    @abstractmethod
    def _look_at_targets(self, survey: Survey, words: np.ndarray | None) -> int:
        """Take notice of the targets of a stream; the number of classes, 0 for numbers."""

    @abstractmethod
    def _encoded(self, y: Tensor) -> Tensor:
        """Targets of a stream as the network learns them."""

    def _fit_task(
        self,
        task: _Task,
        seed: int,
        resume: bool,
        findings: Callable[[Self], Findings] | None,
    ) -> Self:
        # Built once before anything is written: a mistake in the settings leaves no folder behind.
        self._build(task, seed)
        directory = self.run_directory
        with nullcontext() if directory is None else RunFolder(directory).alone():
            run = self._open_run(task.data, seed, resume)
            self._learn(task, seed, run, resume)
            if run is not None:
                (self.findings() if findings is None else findings(self)).save(run)
                self.run_directory_ = str(run.path)
        return self

    def _learn(self, task: _Task, seed: int, run: RunFolder | None, resume: bool) -> None:
        """Count generators, train and judge; what is trained goes to the run folder."""
        auto = self.n_generators == "auto"
        discovery = self._discover(task, seed, run, resume) if auto else None
        given = None if discovery is None else _Given.by(discovery)
        trained = []
        for number in np.arange(self.n_seeds).tolist():
            own, folder = seed + number, self._folder_of_seed(run, number)
            begun = self._start(task, own, folder, resume) if given is None else given
            trained.append(self._train(task, own, folder, resume, begun))
        held_out = task.held_out
        losses = [predictor.choose_inference(*held_out)[1] for predictor, _ in trained]
        # A loss that is not a number must not win.
        best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
        self.predictor_, self.history_ = trained[best]
        self.network_, self.augmenter_ = self.predictor_.network, self.predictor_.augmenter
        self.generators_ = self.predictor_.generators().numpy()
        self.coef_range_ = self._ranges()
        spans = [predictor.generators() for predictor, _ in trained]
        self.seed_agreement_ = _agreement(spans)
        self._seeds = _seed_rows(spans, losses)
        if run is not None:
            self._save_predictor(run)
        self.dimensions_ = None if discovery is None else discovery.evidence.dimensions
        if discovery is None:
            self.verdict_ = self._judge(*held_out, seed)
            self.symmetries_ = [self._row(losses[best])]
        else:
            self.verdict_ = discovery.verdict
            self.identity_ = self._in_units_of_data(discovery.identity)
            nothing = losses[best]
            if len(self.generators_):
                nothing = self._plain_loss(task, seed, run, resume)
            self.symmetries_ = self._table(
                discovery.evidence, {0: nothing, len(self.generators_): losses[best]}
            )
        self.n_samples_ = task.n_samples
        self._data = task.data
        self._tried = tuple(data[:_TRIED_SAMPLES].clone() for data in task.held_out)
        if run is not None and self.n_seeds > 1:
            run.write_metrics(self.history_.records)

    def _warn_of_oddities(self, notes: list[Note]) -> None:
        for note in notes:
            if note.level == "warning":
                warnings.warn(note.text, stacklevel=4)
        mask = None if self.mask is None else torch.as_tensor(np.asarray(self.mask)).float()
        square = mask is not None and mask.ndim == 2 and mask.shape[0] == mask.shape[1]
        if mask is not None and square and not is_closed(mask):
            warnings.warn(
                "Brackets of generators that the mask allows leave the mask: the group may be "
                "larger than the mask lets you see.",
                stacklevel=4,
            )

    def _task(self, x: np.ndarray, y: np.ndarray, classes: int, seed: int) -> _Task:
        action = make_action(self.action, x.shape[-1])
        output = make_output(self.output, action)
        inputs = torch.from_numpy(np.ascontiguousarray(x)).float()
        targets = torch.from_numpy(np.ascontiguousarray(y))
        targets = targets.long() if classes else targets.float()
        action.check(inputs)
        sizes = None
        if not classes:
            sizes = _TargetSizes(targets.mean(0), targets.std(0, correction=0), _size(targets))
        train, held_out = _split(len(inputs), self.validation, seed)
        return _Task(
            train=(inputs[train], targets[train]),
            held_out=(inputs[held_out], targets[held_out]),
            action=action,
            output=output,
            scales=self._scales(_size(inputs), sizes, action, output),
            classes=classes,
            n_samples=len(inputs),
            data=fingerprint(x, y),
        )

    def _discover(self, task: _Task, seed: int, run: RunFolder | None, resume: bool) -> Discovery:
        """Which generators there are, from two teams of predictors, and how sure that is."""
        predictor = self._build(task, seed)
        smooth = self.network in ("auto", "mlp") and not isinstance(task.action, ImageAction)

        def make_network() -> nn.Module:
            if not smooth:
                return _untrained(self._build_network(task))
            return team_network(*_shapes(task), task.classes)

        evidence = gather(
            make_network,
            task.scaled_train(predictor),
            _scaled(predictor, task.held_out),
            action=task.action,
            output=task.output,
            candidates=entries(predictor.augmenter.basis.mask),
            classes=task.classes,
            epochs=_TEAM_EPOCHS * (self.epochs or _EPOCHS),
            batch_size=self.batch_size,
            **({} if smooth else dict(_OTHER_TEAM, lr=self.lr)),
            device=self.device,
            seed=seed,
            progress=bool(self.verbose),
            run=None if run is None else run.part("teams"),
            resume=resume,
        )
        largest = task.action.usual_range if self.range is None else self.range
        return discover(evidence, largest=largest, labels=bool(task.classes))

    def _start(self, task: _Task, seed: int, run: RunFolder | None, resume: bool) -> _Given | None:
        """What a given number of generators begin from: the likeliest by networks' derivatives.

        None where these say nothing, because elements are far from the identity, pixels move, or
        all samples are zero; and where they would take too long.
        """
        derivable = self.sampler != "integer-grid" and not isinstance(task.action, ImageAction)
        if not derivable or isinstance(task.train, Stream) or task.action.dim > _LARGEST_START:
            return None
        if not bool(task.train[0].any()):
            return None
        predictor = self._build(task, seed)
        basis = predictor.augmenter.basis
        found = known(
            lambda: MLP(*_shapes(task), hidden=TEAM_WIDTHS, smooth=True),
            _scaled(predictor, task.train),
            basis.n_generators,
            action=task.action,
            output=task.output,
            candidates=entries(basis.mask),
            classes=task.classes,
            members=_START_NETWORKS,
            epochs=self._epochs_of(task),
            batch_size=self.batch_size,
            device=self.device,
            seed=seed,
            progress=bool(self.verbose),
            run=None if run is None else run.part("start"),
            resume=resume,
        )
        start = from_first(found.cpu())
        # Fewer than were asked for move the samples at all.
        return _Given(start, None, fixed=False) if len(start) == basis.n_generators else None

    def _build(self, task: _Task, seed: int, given: _Given | None = None) -> Predictor:
        """The untrained network and augmenter of a seed."""
        pick_device(self.device)
        steps = self._steps_of_epoch(task) * self._epochs_of(task)
        usual = task.action.usual_range
        largest = self.range if self.range is not None or given is None else given.range
        warmup = warmup_share(self._warmup(task), usual if largest is None else largest, usual)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = self._build_network(task)
            augmenter = LieAugmenter(
                task.action,
                n_generators=1 if self.n_generators == "auto" else int(self.n_generators),
                output=task.output,
                n_views=self.n_views,
                range=largest,
                sampler=self.sampler,
                warmup_steps=round(warmup * steps),
                objective=self.objective,
                blocks=self.blocks,
                mask=None if self.mask is None else torch.as_tensor(np.asarray(self.mask)),
                basis=given.generators if given is not None and given.fixed else None,
            )
        if given is not None and not given.fixed:
            augmenter.basis.start_at(given.generators)
        return Predictor(network, augmenter, classes=task.classes, **task.scales)

    def _warmup(self, task: _Task) -> float:
        if self.warmup is not None:
            return self.warmup
        return _IMAGE_WARMUP if isinstance(task.action, ImageAction) else _WARMUP

    def _steps_of_epoch(self, task: _Task) -> int:
        return -(-task.n_train // min(self.batch_size, task.n_train))

    def _epochs_of(self, task: _Task) -> int:
        if self.epochs is not None:
            return self.epochs
        return max(_EPOCHS, -(-_LEAST_STEPS // self._steps_of_epoch(task)))

    def _train(
        self,
        task: _Task,
        seed: int,
        run: RunFolder | None,
        resume: bool,
        given: _Given | None,
    ) -> tuple[Predictor, History]:
        predictor = self._build(task, seed, given)
        history = fit(
            predictor.network,
            # Without a generator there is nothing to augment with.
            predictor.augmenter if len(predictor.augmenter.generators) else None,
            task.scaled_train(predictor),
            validation=_scaled(predictor, task.held_out),
            epochs=self._epochs_of(task),
            batch_size=self.batch_size,
            lr=self.lr,
            schedule=self.schedule,
            precision=self.precision,
            device=self.device,
            seed=seed,
            run=run,
            resume=resume,
            progress=bool(self.verbose),
        )
        return predictor.to(pick_device(self.device)).eval(), history

    def _folder_of_seed(self, run: RunFolder | None, number: int) -> RunFolder | None:
        if run is None or self.n_seeds == 1:
            return run
        return run.part("seeds", str(number))

    def _seed(self, resume: bool) -> int:
        """The seed of the first training run; that of the run being resumed, however it came."""
        if resume and self.run_directory is not None:
            return int(RunFolder.open(self.run_directory).config()["seed"])
        return number_from_first(int(check_random_state(self.random_state).randint(2**31 - 1)))

    def _save_predictor(self, run: RunFolder) -> None:
        """The network with the scales it needs to predict."""
        predictor = self.predictor_
        scales = {
            "x_scale": predictor.x_scale,
            "y_scale": predictor.y_scale.tolist(),
            "y_shift": predictor.y_shift.tolist(),
            "views": predictor.views,
            "classes": predictor.classes,
        }
        write_tensors(run.path / "network.safetensors", self.network_.state_dict(), scales)

    def _check_parameters(self, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
        given = self.n_generators
        if given != "auto" and (not isinstance(given, int | np.integer) or given < 1):
            raise ValueError(f"n_generators={given!r}: give a number of at least 1, or 'auto'")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"epochs={self.epochs}: at least one is needed")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation={self.validation}: give a fraction between 0 and 1")
        if self.n_seeds < 1:
            raise ValueError(f"n_seeds={self.n_seeds}: at least one training run is needed")
        same = self.output == "same"
        if same and y_shape != x_shape:
            columns = 1 if len(y_shape) == 1 else y_shape[-1]
            raise ValueError(
                f"output='same' needs y with {x_shape[-1]} columns to transform with X, in shape "
                f"{x_shape}; y has {columns} in shape {y_shape}. For a scalar target use "
                f"output='invariant'"
            )

    def _build_network(self, task: _Task) -> nn.Module:
        in_shape, out_shape = _shapes(task)
        if isinstance(self.network, nn.Module):
            return copy.deepcopy(self.network)
        if callable(self.network):
            return self.network(in_shape, out_shape)
        if self.network not in NETWORKS:
            raise ValueError(
                f"unknown network {self.network!r}; choose from {', '.join(NETWORKS)}, or give a "
                f"module or a function of (in_shape, out_shape)"
            )
        image = isinstance(task.action, ImageAction)
        wants_cnn = self.network == "cnn" or (self.network == "auto" and image)
        if wants_cnn:
            if len(in_shape) != 3 or len(out_shape) != 1:
                raise ValueError(
                    f"network='cnn' needs images (N, C, H, W) and a vector output; X has samples "
                    f"of shape {in_shape}"
                )
            return CNN(in_shape, out_shape[0])
        return MLP(in_shape, out_shape, hidden=tuple(self.hidden))

    def _scales(
        self, x_size: float, y: _TargetSizes | None, action: Action, output: Action
    ) -> dict[str, Any]:
        """One number for X. Targets that move share it or have one of their own; others are
        standardised column by column; labels have no size.
        """
        if not self.scale:
            return {}
        x_scale = 1.0 if isinstance(self.action, Action) else x_size or 1.0
        if y is None:
            return {"x_scale": x_scale}
        if isinstance(output, InvariantAction):
            spread = torch.where(y.spread > 0, y.spread, torch.ones_like(y.spread))
            return {"x_scale": x_scale, "y_scale": spread, "y_shift": y.mean}
        shared = output is action or isinstance(output, AffineAction)
        return {"x_scale": x_scale, "y_scale": x_scale if shared else y.size or 1.0}

    def _judge(self, x: Tensor, y: Tensor, seed: int) -> Verdict:
        predictor, augmenter = self.predictor_, self.augmenter_
        device = predictor.y_scale.device
        # The direct prediction: averaging over a wrong symmetry would hide that it was learned.
        quality = quality_of(predictor(x, views=0).cpu(), y)

        def outputs(batch: Tensor) -> Tensor:
            values = self.network_(batch)
            return values.log_softmax(-1) if predictor.classes else values

        shown = predictor.scale_x(x[:_DEFECT_SAMPLES].to(device))
        along, elsewhere = defects(
            outputs,
            shown,
            augmenter.generators.detach(),
            mask=augmenter.action.mask,
            action=augmenter.action,
            output=augmenter.output,
            seed=seed,
        )
        free = int(augmenter.action.mask.sum())
        verdict = assess(along, elsewhere, quality, free=free, n_seeds=self.n_seeds, seed=seed)
        self.identity_ = self._identified()
        if self.identity_ is not None:
            verdict = verdict.naming(self.identity_)
        if predictor.views == 0:
            verdict.reasons.append(
                "Averaging predictions over the learned elements makes them worse on held-out "
                "data, which speaks against the symmetry, or against so large a range."
            )
        return verdict

    def _identified(self) -> Identity | None:
        """Which algebra the generators span; None where that cannot be told.

        Asked in the units of training, in which translations weigh as much as rotations.
        """
        action = self.augmenter_.action
        if action.dim > LARGEST_NAMED or action.rows not in (action.dim, action.dim - 1):
            return None
        learned = self.augmenter_.generators.detach().cpu()
        try:
            found = identify(learned, rows=action.rows, space_dim=action.space_dim)
        except (RuntimeError, ValueError) as error:
            # A finished training is worth more than its name.
            warnings.warn(f"the algebra could not be named ({error})", stacklevel=3)
            return None
        return self._in_units_of_data(found)

    def _in_units_of_data(self, found: Identity | None) -> Identity | None:
        if found is None or found.exact is None:
            return found
        return replace(found, exact=self.predictor_.in_units_of_data(found.exact))

    def _row(self, loss: float) -> dict[str, Any]:
        """The one row of a table for a given number of generators."""
        return {
            "dimension": len(self.generators_),
            "validation_loss": loss,
            "defect": self.verdict_.defect,
            "upper": self.verdict_.upper,
            "closure": None,
            "seed_agreement": self.seed_agreement_,
            "chosen": True,
        }

    def _plain_loss(self, task: _Task, seed: int, run: RunFolder | None, resume: bool) -> float:
        """What the same network comes to without augmentation, on held-out data."""
        nothing = _Given(task.action.mask.expand(0, -1, -1), None)
        part = None if run is None else run.part("plain")
        predictor, _ = self._train(task, seed, part, resume, nothing)
        return predictor.loss(*task.held_out)

    def _table(self, evidence: Evidence, losses: dict[int, float]) -> list[dict[str, Any]]:
        """A row for no generator, and one for each dimension up to a few beyond what was found."""
        chosen = len(self.generators_)
        measured = zip(evidence.dimensions.rows, evidence.agreement, strict=True)
        found = {0: (None, None)} | {row.dimension: (row, seeds) for row, seeds in measured}
        return [
            {
                "dimension": dimension,
                "validation_loss": losses.get(dimension),
                "defect": row and row.defect,
                "upper": row and row.upper,
                "closure": row and row.closure,
                "seed_agreement": agreement,
                "chosen": dimension == chosen,
            }
            for dimension, (row, agreement) in found.items()
            if dimension <= chosen + _ROWS_BEYOND
        ]

    def _ranges(self) -> list[float]:
        ranges = self.augmenter_.sampler.ranges().detach()
        return ranges.expand(len(self.generators_)).cpu().tolist()

    # -- runs on disk ---------------------------------------------------------------------------

    def _open_run(self, data: dict[str, Any], seed: int, resume: bool) -> RunFolder | None:
        if self.run_directory is None:
            if resume:
                raise ValueError("resume=True needs run_directory=, the run to continue")
            return None
        config = {
            "estimator": type(self).__name__,
            "parameters": _plain(self.get_params(deep=False)),
            "data": data,
            "seed": seed,
            "versions": versions(),
        }
        if not resume:
            return RunFolder.create(self.run_directory, config)
        run = RunFolder.open(self.run_directory)
        found = run.config()
        if found.get("data") != config["data"]:
            then, now = found.get("data", {}), config["data"]
            raise RunError(
                f"{run.path} was fitted on data {str(then.get('sha256'))[:8]}… of shape "
                f"{then.get('x_shape')}, this is {now['sha256'][:8]}… of shape {now['x_shape']}. "
                f"Use a new run directory"
            )
        for kind in ("versions", "parameters"):
            check_same(run.path, found.get(kind, {}), config[kind])
        return run

    # -- results --------------------------------------------------------------------------------

    def findings(self, **changes: Any) -> Findings:
        """What was found, for a report; keyword arguments replace fields (title, truth, …)."""
        check_is_fitted(self, "verdict_")
        verdict, views = self.verdict_, self.predictor_.views
        classes = self.predictor_.classes
        identity, dimensions = self.identity_, getattr(self, "dimensions_", None)
        table = [dict(row) for row in self.symmetries_]
        final = next((row for row in table if row["dimension"] == len(self.generators_)), {})
        found: dict[str, Any] = {
            "title": "Symmetry discovery",
            "sentence": self.sentence(),
            "verdict": verdict,
            "generators": torch.from_numpy(self.generators_),
            "ranges": self.coef_range_,
            "action": self.action if isinstance(self.action, str) else type(self.action).__name__,
            "feature_names": self._axis_names(),
            "samples": self._tried[0][:_SHOWN_SAMPLES],
            "exact": None if identity is None else identity.exact,
            "table": table,
            "spectrum": [] if dimensions is None else [asdict(row) for row in dimensions.rows],
            "algebra": None if identity is None else _algebra(identity),
            **self._trials(),
            "seeds": self._seeds,
            "history": self.history_.records,
            "numbers": {
                "task": f"{classes} classes" if classes else "regression",
                "samples": self.n_samples_,
                "generators": len(self.generators_),
                "defect on held-out data": verdict.defect,
                "95 % upper bound": verdict.upper,
                "held-out variation explained": verdict.quality,
                "held-out loss": final.get("validation_loss"),
                "predictions": f"averaged over {views} elements" if views else "direct",
                "agreement of seeds (smallest cosine)": self.seed_agreement_,
                **self._how_it_was_read(),
                "training time (s)": round(self.history_.seconds, 1),
            },
            "settings": _plain(self.get_params(deep=False)),
            "environment": environment(),
        }
        return Findings(**(found | changes))

    def _how_it_was_read(self) -> dict[str, str]:
        """For the record: what a verdict on a stream rests on."""
        if "read" not in self._data:
            return {}
        searched = "" if self.dimensions_ is None else f", generators ordered on {SEARCHED} others"
        judged = f"judged on {self._data['held_out']} held-out samples drawn at random"
        return {"data": f"read piece by piece; {judged}{searched}"}

    def _trials(self) -> dict[str, Any]:
        """What the predictor does when samples move: asked once, for it takes a while."""
        # A fit makes a new predictor; trials of another one are out of date.
        if getattr(self, "_tried_predictor", None) is not self.predictor_:
            x, y = self._tried
            labels = getattr(self, "classes_", None)
            names, ranges = self._axis_names(), self.coef_range_
            self._trial_results = {
                "sweep": sweep(self.predictor_, x, y, ranges, names=names, labels=labels),
                "departure": departure(self.predictor_, x, y, ranges),
                "predictors": ways_to_predict(self.predictor_, x, y),
            }
            self._tried_predictor = self.predictor_
        return self._trial_results

    def sentence(self) -> str:
        """The result in two sentences that can be pasted, what was not tested included."""
        check_is_fitted(self, "verdict_")
        verdict, count = self.verdict_, len(self.generators_)
        if self.dimensions_ is not None:
            return self._sentence_of_teams()
        return (
            f"On {self.n_samples_} samples, {count} generator{'s' if count > 1 else ''} of a "
            f"continuous symmetry {'were' if count > 1 else 'was'} learned together with a "
            f"predictor; on held-out data the predictor's Lie derivative along "
            f"{'them' if count > 1 else 'it'} is {verdict.defect:.2g} of that along a random "
            f"direction (95 % upper bound {verdict.upper:.2g}), and it explains "
            f"{verdict.quality:.3g} of the variation. {self._named()}Only the identity component "
            f"was tested. The verdict is {verdict.outcome}."
        )

    def _sentence_of_teams(self) -> str:
        verdict, start = self.verdict_, f"On {self.n_samples_} samples"
        if verdict.outcome == "certified":
            return (
                f"{start}, a continuous symmetry of dimension {verdict.dimension} is certified: "
                f"{self._measured_by_teams()}. {self._named()}{_until(verdict.holds_until)}"
                + (f" Its group is {verdict.components}." if verdict.components else "")
            )
        if verdict.outcome == "refuted":
            return (
                f"{start} there is no continuous symmetry among those that the action can "
                f"express: {self._measured_by_teams()}."
            )
        return (
            f"{start} it cannot be told whether there is a continuous symmetry: "
            f"{self._measured_by_teams()}."
        )

    def _measured_by_teams(self) -> str:
        verdict = self.verdict_
        teams = f"two teams of predictors trained on disjoint halves explain {verdict.quality:.4f}"
        if verdict.defect is None:
            return f"{teams} of the held-out variation, and have nothing in common"
        whose = "of the span" if verdict.dimension else "of the best direction"
        return (
            f"{teams} of the held-out variation, and the defect {whose} is {verdict.defect:.2g} "
            f"(95 % upper bound {verdict.upper:.2g}; 0 for a symmetry, about 1 for an arbitrary "
            f"direction)"
        )

    def _named(self) -> str:
        if self.identity_ is None or not self.identity_.named:
            return ""
        span = "They span" if len(self.generators_) > 1 else "It spans"
        return f"{span} {self.identity_.description or self.identity_.name}. "

    def _axis_names(self) -> list[str]:
        action = self.augmenter_.action
        if isinstance(action, ImageAction):
            return ["x", "y", "1"]
        names = self._names(np.empty((0, *self.sample_shape_)))
        return [*names, "1"] if isinstance(action, AffineAction) else names[: action.dim]

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page about what was found.

        Parameters
        ----------
        path
            Of the .html file.
        """
        # Here, because fitting and predicting should not need matplotlib.
        from lieaugmenter.report.html import write_report

        return write_report(self.findings(), Path(path))

    def export(self, to: str = "torch", **options: Any) -> Any:
        """The result in another form.

        Parameters
        ----------
        to
            ``"torch"``: a module that maps inputs to averaged predictions in the units of the
            data. ``"json"``: a versioned dictionary of plain values. ``"latex"``: a table to
            paste. ``"sympy"``: a list of matrices. ``"transform"``: a module that moves samples by
            random elements. ``"network"``: an equivariant network of the exact algebra, to train.
        options
            Of the form, see `lieaugmenter.export.Manifest`: ``exact`` and ``digits`` of formulas,
            ``hidden`` of the network, …
        """
        check_is_fitted(self, "verdict_")
        if to not in (*FORMS, "torch"):
            raise ValueError(f"unknown export {to!r}; choose from {', '.join(FORMS)}, torch")
        if to == "torch":
            if options:
                raise ValueError(f"export('torch') has no option {', '.join(options)}")
            return copy.deepcopy(self.predictor_)
        if to == "transform" and isinstance(self.action, Action):
            options.setdefault("action", self.action)
        return self.manifest().export(to, **options)

    def manifest(self) -> Manifest:
        """What was found as data, which need neither this estimator nor what it was fitted on."""
        check_is_fitted(self, "verdict_")
        settings, identity = _plain(self.get_params(deep=False)), self.identity_
        with torch.no_grad():
            prediction = self.predictor_(torch.zeros(1, *self.sample_shape_), views=0)
        return Manifest(
            generators=torch.from_numpy(self.generators_),
            exact=None if identity is None else identity.exact,
            ranges=self.coef_range_,
            action=settings["action"],
            output=settings["output"],
            feature_names=self._axis_names(),
            in_shape=tuple(self.sample_shape_),
            out_shape=tuple(prediction.shape[1:]) or (1,),
            algebra=self.verdict_.group,
            description="" if identity is None else identity.description,
            scale=self.predictor_.x_scale,
            law=self.sampler,
            verdict=self.verdict_.to_json(),
            made=made_by(settings, environment()),
        )

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

    def __str__(self) -> str:
        if not hasattr(self, "verdict_"):
            return repr(self)
        agreement = "seeds" if self.dimensions_ is None else "halves"
        header = (
            f"{'dim':>7}  {'held-out loss':>13}  {'defect':>8}  {'95 % upper':>10}  "
            f"{'closure':>8}  {agreement:>6}"
        )
        lines = [f"{type(self).__name__}  verdict: {self.verdict_}", header]
        for row in self.symmetries_:
            mark = ">>" if row["chosen"] else ""
            lines.append(
                f"{mark:>2}{row['dimension']:>5}  {_shown(row['validation_loss'], '.4g'):>13}  "
                f"{_shown(row['defect']):>8}  {_shown(row['upper']):>10}  "
                f"{_shown(row['closure']):>8}  {_shown(row['seed_agreement']):>6}"
            )
        lines += [f"  {reason}" for reason in self.verdict_.reasons]
        if self.generators_.shape[-1] <= _LARGEST_PRINTED:
            lines += [self.augmenter_.summary()]
        return "\n".join(lines)

    def _predict_values(self, X: Any, views: int | None) -> np.ndarray:
        check_is_fitted(self, "verdict_")
        x = torch.from_numpy(np.ascontiguousarray(self._validated_x(X, reset=False))).float()
        return self.predictor_(x, views=views).cpu().double().numpy()


class SymmetryRegressor(RegressorMixin, _SymmetryEstimator):
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
        How they move y: ``"invariant"``, ``"same"``, or an `Action`.
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
        Fraction of the samples held out for the verdict.
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
            as `stream_data` makes of a file, an IterableDataset or a DataLoader; a random part of
            at most 20,000 samples is then held out.
        y
            Targets, (N,) or (N, m), or like X for ``output="same"``; none for a stream.
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
        target = _numeric_target(y)
        _check_same_length(x, target)
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


class SymmetryClassifier(ClassifierMixin, _SymmetryEstimator):
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
        if not (isinstance(self.output, InvariantAction) or self.output == "invariant"):
            raise ValueError("a classifier's labels do not move: output must be 'invariant'")
        stream = as_stream(X)
        if stream is not None:
            return self._fit_stream(stream, y, resume=resume, findings=findings)
        x = self._validated_x(X, reset=True)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        check_classification_targets(y)
        labels = _without_column(np.asarray(y))
        if labels.ndim != 1:
            raise ValueError(f"y has shape {labels.shape}; labels must be (N,)")
        _check_same_length(x, labels)
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
            raise ValueError(f"y has one class only ({self.classes_[0]!r}); a classifier needs two")
        return len(self.classes_)

    def predict_proba(self, X: Any, views: int | None = None) -> np.ndarray:
        """Probabilities of the classes; `views` as in `SymmetryRegressor.predict`."""
        return self._predict_values(X, views)

    def predict(self, X: Any, views: int | None = None) -> np.ndarray:
        """The likeliest label of each sample."""
        likeliest = self.predict_proba(X, views).argmax(1)
        return self.classes_[likeliest]


def _untrained(network: nn.Module) -> nn.Module:
    """The network with new weights, in place: teams that share what it has learned would agree."""
    for module in network.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return network


def _shapes(task: _Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a sample and of an output."""
    x, y = task.held_out
    out_shape = (task.classes,) if task.classes else tuple(y.shape[1:]) or (1,)
    return tuple(x.shape[1:]), out_shape


def _scaled(predictor: Predictor, data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Inputs and targets as the network sees them."""
    return predictor.scale_x(data[0]), predictor.scale_y(data[1])


def _until(reached: Sequence[float | None]) -> str:
    """How far generators hold, in a sentence."""
    if not reached:
        return ""
    known = [until for until in reached if until is not None]
    if len(known) < len(reached):
        return "Large elements move samples to where there are no data, and were not judged."
    return f"It holds for coefficients up to {min(known):.3g}, the largest that were judged."


def _shown(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)


def _numeric_target(y: Any) -> np.ndarray:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    target = np.asarray(y)
    if target.dtype.kind in "OUS":
        try:
            target = target.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"y holds {target.dtype} values that are no numbers; for labels use "
                f"SymmetryClassifier"
            ) from None
    if target.dtype.kind == "c":
        raise ValueError("Complex data not supported: y is complex")
    return _without_column(target).astype(np.float64)


def _without_column(y: np.ndarray) -> np.ndarray:
    """(N, 1) as (N,), with the warning that scikit-learn's users know."""
    if y.ndim != 2 or y.shape[1] != 1:
        return y
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected",
        DataConversionWarning,
        stacklevel=4,
    )
    return y.ravel()


def _check_same_length(x: np.ndarray, y: np.ndarray) -> None:
    if len(x) != len(y):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {len(x)} rows, "
            f"y has {len(y)}"
        )


def _split(n: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to train on and to hold out; with very few samples both are all of them."""
    held = round(n * fraction)
    if held < 2 or n - held < 2:
        everything = torch.arange(n)
        return everything, everything
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[held:], order[:held]


def _size(values: Tensor) -> float:
    size = float(values.double().square().mean().sqrt())
    return size if size > 0 else 1.0


def _agreement(spans: list[Tensor]) -> float | None:
    """Smallest principal cosine between the spans of any two seeds; None where there is none."""
    if len(spans) < 2 or not all(len(span) for span in spans):
        return None
    pairs = [(a, b) for i, a in enumerate(spans) for b in spans[i + 1 :]]
    return min(float(principal_cosines(a, b).min()) for a, b in pairs)


def _seed_rows(spans: list[Tensor], losses: list[float]) -> list[dict[str, Any]]:
    """Of each training run its held-out loss, and how its span agrees with those of all runs."""

    def cosine(a: Tensor, b: Tensor) -> float | None:
        return float(principal_cosines(a, b).min()) if len(a) and len(b) else None

    return [
        {"loss": loss, "cosines": [cosine(span, other) for other in spans]}
        for span, loss in zip(spans, losses, strict=True)
    ]


def _algebra(identity: Identity) -> dict[str, Any]:
    """What is known about the algebra, without its tensors."""
    content = identity.to_json()
    evidence = content.pop("invariants") | {"kind": identity.invariants.kind}
    del content["exact"], evidence["structure_constants"]
    return content | {"invariants": evidence}


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON can hold them; modules and functions as their description."""

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
    return {name: plain(value) for name, value in parameters.items() if name not in left_out}
