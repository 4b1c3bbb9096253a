"""fit(): train a predictor and an augmenter together, on a CPU or a GPU."""

from __future__ import annotations

import functools
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from lieaugmenter.actions.base import Batch, map_tensors, tensors_of
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.averaging import in_chunks
from lieaugmenter.learning.batches import Batches, LoaderBatches, StreamBatches, TensorBatches
from lieaugmenter.learning.checkpoint import load_checkpoint, save_checkpoint
from lieaugmenter.learning.distributed import SharedLoss
from lieaugmenter.learning.objective import prediction_loss
from lieaugmenter.learning.progress import TextProgress
from lieaugmenter.learning.streams import Stream, as_stream
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.learning.weights import WeightAverage, save_weights
from lieaugmenter.processes import (
    alike,
    any_process,
    mean_over_processes,
    number_from_first,
    process_count,
    process_number,
)
from lieaugmenter.runs import RunError, RunFolder, digest_of, fields_of, versions, write_tensors

NON_FINITE = ("skip", "stop")
PRECISIONS = ("bf16", "float32")
SCHEDULES = ("constant", "cosine", "warm-cosine")
# The cosine ends at this fraction of the starting rate.
_LAST_RATE = 0.01
# A warm schedule rises over this share of training.
_RISE = 0.05
# Terms are looked at this often; every look waits for the device.
_LOOK_EVERY = 50
# Seconds after which a long epoch is kept as it is, where nobody says how often to save.
_SAVE_EVERY = 600.0
# This many steps skipped in a row are no accident any more.
_MOST_SKIPPED = 10
# Steps on a side stream before a CUDA graph is captured, as its documentation asks.
_CAPTURE_WARMUP = 3


class TrainingDiverged(RuntimeError):  # noqa: N818  # it names what happened
    """A term of the objective or the generators became non-finite."""


class TimeIsUp(Exception):  # noqa: N818  # it names what happened
    """Training was stopped by its time limit, with a checkpoint to continue from."""


@dataclass
class History:
    """What happened in training: one record an epoch."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def column(self, name: str) -> list[float]:
        """One value of every record that has it."""
        return [record[name] for record in self.records if name in record]

    @property
    def seconds(self) -> float:
        """Time spent in training, over all sittings."""
        return sum(self.column("seconds"))


def fit(
    model: nn.Module,
    augmenter: LieAugmenter | Unaugmented | None,
    train: tuple[Batch, Tensor] | DataLoader[Any] | IterableDataset[Any] | Stream | TensorBatches,
    *,
    validation: tuple[Batch, Tensor] | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    lr: float = 1e-3,
    schedule: str = "cosine",
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
    precision: str = "float32",
    device: str | torch.device = "auto",
    seed: int = 0,
    run: RunFolder | None = None,
    resume: bool = False,
    save_every: float | None = None,
    keep_weights: bool = False,
    time_limit: float | None = None,
    average: float = 0.0,
    capture: bool = True,
    compile: bool = False,
    chunk: int | None = None,
    on_non_finite: str = "stop",
    progress: bool | str = True,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> History:
    """Train a predictor and an augmenter together by the multi-task objective.

    Several processes that were started together, see `distributed`, share every batch: they must
    call this with the same arguments, and end with the same numbers as one of them alone would.

    Parameters
    ----------
    model
        The predictor, any module that maps a batch of inputs to one tensor.
    augmenter
        The augmenter; both are trained in place and end on `device`. None trains the predictor
        alone, on the prediction loss; so does `Unaugmented`, with a choice of that loss.
    train
        Inputs and labels, kept on the device where they fit; a DataLoader of pairs (x, y), in its
        own order; a `Stream` or an IterableDataset of pairs, which are read piece by piece and
        shuffled as far as a buffer reaches; or batches made for the device, such as
        `PaddedBatches`.
    validation
        Inputs and labels on which the prediction loss is recorded after every epoch.
    epochs, batch_size
        Length of training. A DataLoader and batches have their own batch size.
    lr, schedule
        Learning rate, ``"constant"`` or falling as a ``"cosine"`` to a hundredth;
        ``"warm-cosine"`` rises to it over the first twentieth of training. Without a rise the
        first steps of Adam at a high rate can leave a network of ReLUs dead.
    optimizer
        Makes the optimiser from parameter groups; Adam unless given.
    precision
        ``"float32"``, or ``"bf16"`` to run the model (never the exponentials) under autocast.
    device
        ``"auto"``: a GPU if there is one.
    seed
        Of the order of samples and of the sampled elements. Torch's global random state is left
        as it was found.
    run
        A folder for checkpoints and metrics, which no other process may use meanwhile; nothing is
        written without it.
    resume
        Continue from the run's checkpoint, or begin if there is none. On a CPU the finished run
        equals an uninterrupted one bit for bit.
    save_every
        Seconds between checkpoints, wherever in training they fall due; the last epoch, Ctrl-C and
        the time limit write one anyway. Unless given, the end of every epoch does, and every ten
        minutes of a longer one. With a DataLoader, which has its own order, checkpoints are
        only written where an epoch ends.
    keep_weights
        With every checkpoint write a file of the weights alone, matrices in half precision: see
        `save_weights`.
    time_limit
        Seconds after which training stops with a checkpoint and raises `TimeIsUp`; needs `run`.
    average
        The length of a running average of the weights, as a share of training. The model is
        validated with the averages and ends with them. 0, the default, is none; 0.005 suits a long
        training.
    capture
        On a GPU, record the whole step in a CUDA graph and replay it; not with an `optimizer` of
        your own.
    compile
        Compile the model for full batches with ``torch.compile``, and let cuDNN look for its
        fastest algorithms, whose results need not repeat to the bit: pays for convolutions on a
        GPU. The module itself stays as it is.
    chunk
        Samples that the model sees at a time, with their views: a step goes through its batch in
        such chunks, in less memory and with the same result up to rounding. All at once unless
        given; where a GPU runs out of memory, halved until the step fits. Of several processes
        each goes through its rows in chunks of this size, and none looks for a smaller one.
    on_non_finite
        ``"stop"`` when a term, the generators or a weight became non-finite; seen within 50 steps.
        ``"skip"``: leave out every step with a non-finite term or gradient, and stop after ten in
        a row; this looks at every step, so that none is captured. Either way the batch is kept
        in the folder ``non-finite`` of the run.
    progress
        Show a progress bar on standard error; what stands before it, if it is a word.
    on_epoch
        Called with every record, before the checkpoint of that epoch is written; the model has
        its averages meanwhile, where they are taken.

    Returns
    -------
    History
        The records of all epochs.

    Raises
    ------
    TrainingDiverged
        Something became non-finite; the message names it, the batch and the last good checkpoint.
    TimeIsUp
        After `time_limit` seconds.
    RunError
        The run is in use by another process, was started with other data, settings or versions
        (the message lists them), has no whole checkpoint, or cannot be written.
    KeyboardInterrupt
        Ctrl-C: after the step at hand, with a checkpoint to resume from if there is a run.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; choose from {', '.join(PRECISIONS)}")
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; choose from {', '.join(SCHEDULES)}")
    if on_non_finite not in NON_FINITE:
        raise ValueError(
            f"unknown on_non_finite {on_non_finite!r}; choose from {', '.join(NON_FINITE)}"
        )
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk={chunk}: at least one sample is needed at a time")
    if epochs < 1 or batch_size < 1 or not lr > 0:
        raise ValueError(f"epochs={epochs}, batch_size={batch_size}, lr={lr}: all must be positive")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is a {type(model).__name__}; fit trains an nn.Module (wrap a function in one)"
        )
    for name, data in (("train", train), ("validation", validation)):
        pair = isinstance(data, tuple | list) and len(data) == 2
        loader = name == "train" and (
            isinstance(data, TensorBatches) or as_stream(data) is not None
        )
        if not (pair or loader or data is None):
            kinds = "a pair (x, y) of tensors" + (" or a DataLoader" if name == "train" else "")
            raise TypeError(f"{name} is a {type(data).__name__}; expected {kinds}")
    if resume and run is None:
        raise ValueError("resume=True needs run=, the folder to continue from")
    if time_limit is not None and run is None:
        raise ValueError("time_limit= needs run=, the folder to continue from")
    if not 0 <= average < 1:
        raise ValueError(f"average={average}: a share of training, from 0 (none) to below 1")
    learner = Unaugmented() if augmenter is None else augmenter
    seed, together = number_from_first(seed), process_count() > 1
    where = pick_device(device)
    if learner.mixes_views:
        _warn_of_batch_norm(model)
    if chunk is not None and not learner.separable:
        raise ValueError(f"the loss of {type(learner).__name__} cannot be taken in chunks")
    if together and not learner.separable:
        raise ValueError(
            f"the loss of {type(learner).__name__} is no mean over samples: processes cannot share "
            f"its batches, train it without torchrun"
        )
    with _forked_rng(where), nullcontext() if run is None else run.alone():
        torch.manual_seed(seed)
        batches = _batches(train, batch_size, seed, where)
        model.to(where)
        if where.type == "cuda" and precision == "bf16":
            lay_channels_last(model)
        learner.to(where)
        groups = [trainable(model), trainable(learner, **learner.optimizer_options)]
        made = make_optimizer(groups, lr, where, optimizer)
        trainer = _Trainer(model, learner, batches, made)
        trainer.epochs, trainer.lr, trainer.schedule = epochs, lr, schedule
        trainer.precision, trainer.run, trainer.on_epoch = precision, run, on_epoch
        trainer.chunk, trainer.on_non_finite = chunk, on_non_finite
        # A rate that is a plain number would be frozen into the graph; and what is recorded is
        # one chunk, shares nothing with other processes, and never asks whether to skip.
        plain = chunk is None and on_non_finite == "stop" and not together
        trainer.capture = capture and where.type == "cuda" and optimizer is None and plain
        trainer.validation = validation
        trainer.save_every, trainer.keep_weights = save_every, keep_weights
        if average:
            trainer.average = WeightAverage(model, length=average * epochs * len(batches))
        if time_limit is not None:
            trainer.deadline = time.monotonic() + time_limit
        if run is not None:
            trainer.settings = {
                **versions(),
                "epochs": epochs,
                "batch_size": batch_size,
                "lr": lr,
                "schedule": schedule,
                "precision": precision,
                "seed": seed,
                "optimizer": type(made).__name__,
                "on_non_finite": on_non_finite,
                "average": average,
                **_described(learner),
                **_data_of(batches),
            }
        if compile:
            trainer.compiled = torch.compile(model, dynamic=False)
        if resume:
            trainer.restore()
        elif run is not None and run.checkpoint_path.exists():
            raise RunError(
                f"{run.path} holds a training that was begun, which is never overwritten; continue "
                f"it with resume=True, or choose another folder"
            )
        if together:
            trainer.shared = SharedLoss(model, learner, trainer.predict)
        if learner.sampler.warmup_steps > epochs * len(batches):
            warnings.warn(
                f"the range grows over {learner.sampler.warmup_steps} steps, but training has "
                f"only {epochs * len(batches)}: give the augmenter fewer warmup_steps",
                stacklevel=2,
            )
        label = progress if isinstance(progress, str) else "fit"
        shown = progress and process_number() == 0
        bar = TextProgress(epochs * len(batches), label) if shown else None
        try:
            with _fastest_convolutions(compile), _graceful_interrupt() as interrupted:
                trainer.train(bar, interrupted)
        finally:
            # They refer to the trainer as it does to them: until the next garbage collection they
            # would hold their memory on the device.
            trainer.graphs.clear()
            if bar is not None:
                bar.close()
        return trainer.history


def _batches(train: Any, batch_size: int, seed: int, device: torch.device) -> Batches:
    if isinstance(train, DataLoader):
        return LoaderBatches(train, device=device)
    if isinstance(train, TensorBatches):
        if train.device.type != device.type:
            raise ValueError(f"the batches are made for {train.device}, device is {device}")
        return train
    stream = as_stream(train)
    if stream is not None:
        return StreamBatches(stream, batch_size, seed=seed, device=device)
    x, y = train
    return TensorBatches(x, y, batch_size, seed=seed, device=device)


class _Progress(TypedDict):
    """What a checkpoint holds besides tensors."""

    epoch: int
    step: int
    sums: list[float]
    skipped: int
    seconds: float
    records: list[dict[str, Any]]


class _Trainer:
    """The loop. Position and records are attributes, so that a checkpoint can hold them."""

    epochs: int
    lr: float
    schedule: str
    precision: str
    run: RunFolder | None
    on_epoch: Callable[[dict[str, Any]], None] | None
    capture: bool
    validation: tuple[Batch, Tensor] | None
    chunk: int | None
    on_non_finite: str
    settings: dict[str, Any]
    save_every: float | None
    keep_weights: bool
    average: WeightAverage | None = None
    deadline: float = math.inf

    def __init__(
        self,
        model: nn.Module,
        augmenter: LieAugmenter | Unaugmented,
        batches: Batches,
        optimizer: Optimizer,
    ) -> None:
        self.model = model
        self.augmenter = augmenter
        self.batches = batches
        self.optimizer = optimizer
        self.device = augmenter.term_weights.device
        self.history = History()
        self.epoch = 0
        self.step = 0
        self.sums = [0.0] * len(augmenter.terms)
        self.recent: list[Tensor] = []
        # Batches that can be had again are looked at less often, see `_batch`.
        self.look_every = _LOOK_EVERY if batches.repeats else 1
        self.latest: tuple[Batch, Tensor] | None = None
        self.skipped = 0
        self.skipped_in_a_row = 0
        self.seconds = 0.0
        self.graphs: list[CapturedStep] = []
        # The model as full batches see it.
        self.compiled: Callable[[Batch], Tensor] = model
        # And as the batch at hand sees it.
        self.network: Callable[[Batch], Tensor] = model
        self.saved_at: str | None = None
        self.saved_on = 0.0
        # The loss, where other processes have a part in it.
        self.shared: SharedLoss | None = None

    def train(self, bar: TextProgress | None, interrupted: Callable[[], bool]) -> None:
        self.model.train()
        self.augmenter.train()
        self.saved_on = time.monotonic()
        while self.epoch < self.epochs:
            started = time.monotonic()
            for x, y in self.batches.epoch(self.epoch, skip=self.step):
                set_rate(self.optimizer, self._rate(self.step))
                self.latest = (x, y)
                self._one_step(x, y)
                self.step += 1
                if len(self.recent) >= self.look_every:
                    self._look()
                    if bar is not None:
                        done = self.epoch * len(self.batches) + self.step
                        bar.update(done, self._means())
                late = self._agreed(time.monotonic() > self.deadline)
                stop = self._agreed(interrupted())
                if late or stop or self._agreed(self._save_is_due()):
                    self.seconds += time.monotonic() - started
                    started = time.monotonic()
                    self._save_here()
                if late or stop:
                    self._stop(late)
            self._look()
            self.seconds += time.monotonic() - started
            self._end_epoch()
            if bar is not None:
                bar.update(self.epoch * len(self.batches), self._shown())
        if self.average is not None:
            self.average.write()

    def _agreed(self, asked: bool) -> bool:
        """Whether any process asks for something; they ask each other when they look, for all of
        them to do it after the same step.
        """
        if self.shared is None:
            return asked
        return not self.recent and any_process(asked)

    def _one_step(self, x: Batch, y: Tensor) -> None:
        if self.capture:
            graph = next((graph for graph in self.graphs if graph.fits(x, y)), None)
            if graph is None and self._full(y) and len(self.graphs) < self.batches.shapes:
                graph = self._try_capture(x, y)
            # The last batch of an epoch may be smaller: it takes the plain way.
            if graph is not None:
                self.augmenter.advance()
                self.recent.append(graph.replay(x, y))
                return
        terms = self._step_that_fits(x, y)
        if not self.skipped_in_a_row:
            self.recent.append(terms)

    def _step_that_fits(self, x: Batch, y: Tensor) -> Tensor:
        """One step, in smaller chunks if the device runs out of memory."""
        while True:
            before = _Moment(self.augmenter, self.device)
            try:
                return self._eager_step(x, y)
            except torch.OutOfMemoryError as error:
                size = len(y) if self.chunk is None else min(self.chunk, len(y))
                if size == 1 or not self.augmenter.separable:
                    raise
                if self.shared is not None:
                    raise torch.OutOfMemoryError(
                        f"{error}. With several processes fit does not look for smaller chunks, "
                        f"because the others are in the middle of the step: give it chunk=, or a "
                        f"smaller batch_size"
                    ) from None
            # Not in the handler, whose exception holds on to the memory of the failed step.
            before.restore()
            self.optimizer.zero_grad(set_to_none=True)
            self.chunk, self.capture = -(-size // 2), False
            self.graphs.clear()  # they hold memory
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            warnings.warn(
                f"out of memory: from here on steps are taken in chunks of {self.chunk} samples",
                stacklevel=2,
            )

    def _eager_step(self, x: Batch, y: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        terms = self._gradients(x, y)
        if self.on_non_finite == "skip" and not self._is_finite(terms):
            self._skip(terms)
        else:
            self.skipped_in_a_row = 0
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
        return terms

    def _gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Fill in the gradients of a batch, all at once or chunk by chunk; the terms."""
        chunked = self.chunk is not None and self.chunk < len(y)
        self.network = self.compiled if self._full(y) and not chunked else self.model
        if self.shared is None and not chunked:
            loss = self.augmenter.loss(self.predict, x, y)
            loss.backward()
            return loss.parts.values_tensor
        shares = []
        for loss, terms in self._shares(x, y):
            loss.backward()
            shares.append(terms)
        return torch.stack(shares).sum(0)

    def _shares(self, x: Batch, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The losses of chunks of a batch, of those that are this process's, and their terms."""
        if self.shared is not None:
            yield from self.shared(x, y, self.chunk)
        else:
            assert self.chunk is not None  # _gradients has looked
            for loss in self.augmenter.loss_in_chunks(self.predict, x, y, self.chunk):
                yield loss, loss.parts.values_tensor

    def predict(self, x: Batch) -> Tensor:
        """What the model makes of the batch at hand, in the precision asked for."""
        return self._forward(x, self.network)

    def _is_finite(self, terms: Tensor) -> bool:
        groups = self.optimizer.param_groups
        found = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        finite = all(bool(values.isfinite().all()) for values in (terms, *found))
        return not any_process(not finite)

    def _skip(self, terms: Tensor) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= _MOST_SKIPPED:
            self._diverged(f"the terms or gradients of {_MOST_SKIPPED} steps in a row", self.step)
        if self.skipped <= _MOST_SKIPPED:
            self._keep_batch(self.step, mean_over_processes(terms.cpu()).tolist())

    def _forward(self, x: Batch, network: Callable[[Batch], Tensor]) -> Tensor:
        if self.precision == "float32":
            return network(x)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            prediction = network(x)
        return prediction.float() if isinstance(prediction, Tensor) else prediction

    def _full(self, y: Tensor) -> bool:
        """Whether a batch has the size to record; the last of an epoch may be smaller."""
        return self.batches.size in (None, len(y))

    def _try_capture(self, x: Batch, y: Tensor) -> CapturedStep | None:
        try:
            beside = self.graphs[0] if self.graphs else None
            self.graphs.append(CapturedStep(self._eager_step, (x, y), self._state, beside=beside))
            return self.graphs[-1]
        except RuntimeError as error:
            # A network that waits for the device, or changes shapes, runs step by step instead.
            self.capture = False
            warnings.warn(f"this step cannot be captured in a CUDA graph ({error})", stacklevel=2)
            return None
        finally:
            self.augmenter.recount()

    def _state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        modules = [*self.model.state_dict().values(), *self.augmenter.state_dict().values()]
        averages = [] if self.average is None else self.average.tensors.values()
        return [*modules, *averages, *optimizer_tensors(self.optimizer)]

    def _rate(self, step: int) -> float:
        """The learning rate of a step of this epoch."""
        total = self.epochs * len(self.batches)
        done = self.epoch * len(self.batches) + step
        return rate_at(done / total, self.lr, self.schedule)

    def _look(self) -> None:
        """Add up the recent terms; stop if one of them, or a generator, is non-finite."""
        if not self.recent:
            return
        block = mean_over_processes(torch.stack(self.recent).cpu().double())
        first_step = self.step - len(self.recent)
        self.recent.clear()
        bad = ~block.isfinite()
        if bool(bad.any()):
            row = int(bad.any(1).nonzero()[0])
            names = [n for n, b in zip(self.augmenter.terms, bad[row], strict=True) if b]
            self._diverged(f"the {' and the '.join(names)} term", first_step + row)
        if not bool(self.augmenter.generators.isfinite().all()):
            self._diverged("the generators", self.step - 1)
        # One after the other: the sum must not depend on when it was looked at.
        for row in block.tolist():
            self.sums = [total + value for total, value in zip(self.sums, row, strict=True)]

    def _diverged(self, what: str, step: int) -> None:
        batch = self._keep_batch(step)
        inspect = "" if batch is None else f" The batch is kept in {batch}."
        kept = f"The last good checkpoint is {self.saved_at}" if self.saved_at else "None was kept"
        raise TrainingDiverged(
            f"training stopped: {what} became non-finite in epoch {self.epoch + 1}, step "
            f"{step + 1}.{inspect} {kept}. Usual remedies: a smaller range of the coefficients, a "
            f"longer warm-up, a smaller learning rate, inputs scaled to about 1"
        )

    def _keep_batch(self, step: int, terms: list[float] | None = None) -> Path | None:
        """Write the batch of a step of this epoch to the run folder; where it is."""
        if self.run is None:
            return None
        x, y = self._batch(step)
        # A structured input has several tensors: in their order.
        named = {f"x.{i}": tensor for i, tensor in enumerate(tensors_of(x))}
        name = f"epoch-{self.epoch + 1}-step-{step + 1}.safetensors"
        path = self.run.path / "non-finite" / name
        about = {"epoch": self.epoch + 1, "step": step + 1, "terms": self.augmenter.terms}
        values = None if terms is None else [str(value) for value in terms]
        write_tensors(path, {**named, "y": y}, {**about, "values": values})
        return path

    def _batch(self, step: int) -> tuple[Batch, Tensor]:
        """The batch of a step of this epoch: read again, or the last that a DataLoader gave."""
        if self.batches.repeats:
            return next(iter(self.batches.epoch(self.epoch, skip=step)))
        assert self.latest is not None  # there was a step
        return self.latest

    def _means(self) -> dict[str, float]:
        steps = max(self.step - self.skipped, 1)
        terms = zip(self.augmenter.terms, self.sums, strict=True)
        return {name: total / steps for name, total in terms}

    def _shown(self) -> dict[str, float]:
        shown = ["prediction", "equivariance", "validation"]
        return {
            name: self.history.records[-1][name]
            for name in shown
            if name in self.history.records[-1]
        }

    def _end_epoch(self) -> None:
        self._check_weights()
        if self.shared is not None and not alike(self.augmenter.generators.detach()):
            raise RuntimeError(
                f"after epoch {self.epoch + 1} the generators differ between processes; they must "
                f"run the same versions on the same data"
            )
        record: dict[str, Any] = {"epoch": self.epoch + 1, **self._means()}
        if self.skipped:
            record["skipped"] = self.skipped
        # Not asked of the optimiser, which has none yet if the run was resumed after the last step.
        record["lr"] = self._rate(self.step - 1) * self.optimizer.param_groups[0]["rate_scale"]
        record["range"] = float(self.augmenter.sampler.ranges().max())
        if self.validation is not None:
            with self._averaged():
                record["validation"] = self._validate(*self.validation)
        if self.device.type == "cuda":
            record["peak_gb"] = torch.cuda.max_memory_allocated(self.device) / 1e9
        record["seconds"] = self.seconds
        self.history.records.append(record)
        self.epoch, self.step, self.seconds, self.skipped = self.epoch + 1, 0, 0.0, 0
        self.sums = [0.0] * len(self.sums)
        # Before the checkpoint, which has to hold what is changed there.
        if self.on_epoch is not None:
            with self._averaged():
                self.on_epoch(record)
        if self.save_every is None or self._save_is_due() or self.epoch == self.epochs:
            self._save()

    def _averaged(self) -> AbstractContextManager[None]:
        """The model as it will be in the end: with its averages, where there are any."""
        return nullcontext() if self.average is None else self.average.in_use()

    @torch.no_grad()
    def _validate(self, x: Batch, y: Tensor) -> float:
        self.model.eval()
        predictions = in_chunks(
            lambda chunk: self._forward(
                map_tensors(lambda t: t.to(self.device), chunk), self.model
            ),
            x,
            1024,
        )
        self.model.train()
        y = y.to(self.device)
        shaped = predictions.reshape(y.shape) if y.is_floating_point() else predictions
        return float(prediction_loss(shaped, y, absolute=self.augmenter.objective.absolute))

    def _check_weights(self) -> None:
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            self._diverged("a weight of the network", self.step - 1)

    def _save(self) -> None:
        if self.run is None:
            return
        save_checkpoint(
            self.run,
            model=self.model,
            augmenter=self.augmenter,
            optimizer=self.optimizer,
            progress={
                "epoch": self.epoch,
                "step": self.step,
                "sums": self.sums,
                "skipped": self.skipped,
                "seconds": self.seconds,
                "records": self.history.records,
            },
            settings=self.settings,
            averages=None if self.average is None else self.average.tensors,
        )
        if self.keep_weights:
            save_weights(
                self.run.weights_path,
                self.model,
                self.augmenter,
                averages=None if self.average is None else self.average.tensors,
                about={"epoch": self.epoch, "step": self.step},
            )
        self._saved(self.run)

    def _saved(self, run: RunFolder) -> None:
        """What there is in the checkpoint, told to readers as well."""
        run.write_metrics(self.history.records)
        self.saved_at = f"{run.checkpoint_path} (epoch {self.epoch})"
        self.saved_on = time.monotonic()

    def restore(self) -> None:
        """Continue where the run's checkpoint stopped; from the start if there is none yet."""
        assert self.run is not None  # fit() checks it
        progress = load_checkpoint(
            self.run,
            model=self.model,
            augmenter=self.augmenter,
            optimizer=self.optimizer,
            settings=self.settings,
            averages=None if self.average is None else self.average.tensors,
        )
        if progress is None:
            return
        progress = fields_of(_Progress, progress, self.run.checkpoint_path)
        self.epoch, self.step = progress["epoch"], progress["step"]
        self.sums, self.seconds = progress["sums"], progress["seconds"]
        self.skipped = progress["skipped"]
        self.history.records = progress["records"]
        # The process may have been killed between the two files.
        self._saved(self.run)

    def _save_is_due(self) -> bool:
        interval = _SAVE_EVERY if self.save_every is None else self.save_every
        late = time.monotonic() - self.saved_on > interval
        return self.run is not None and self.batches.repeats and late

    def _save_here(self) -> None:
        """A checkpoint in the middle of an epoch.

        Where the epoch cannot be read again, as with a DataLoader, it stays at the end of the last.
        """
        self._look()
        if self.batches.repeats:
            self._check_weights()
            self._save()

    def _stop(self, late: bool) -> None:
        """Leave, because the time is up or on Ctrl-C."""
        if self.run is None:
            raise KeyboardInterrupt("interrupted; no run folder was given, so nothing was kept")
        if late:
            raise TimeIsUp(f"the time is up; {self.run.path} can be resumed")
        raise KeyboardInterrupt(f"interrupted; {self.run.path} can be resumed")


class _Moment:
    """The state before a step that a failed one leaves changed: random numbers and the warm-up."""

    def __init__(self, augmenter: LieAugmenter | Unaugmented, device: torch.device) -> None:
        self.augmenter, self.device = augmenter, device
        self.steps_taken = augmenter.sampler.steps_taken
        self.random = torch.get_rng_state()
        self.device_random = torch.cuda.get_rng_state() if device.type == "cuda" else None

    def restore(self) -> None:
        self.augmenter.sampler.step.fill_(self.steps_taken)
        self.augmenter.recount()
        torch.set_rng_state(self.random)
        if self.device_random is not None:
            torch.cuda.set_rng_state(self.device_random)


class CapturedStep:
    """One whole training step recorded in a CUDA graph, replayed on new batches.

    Parameters
    ----------
    step
        Takes the inputs, trains on them and returns the terms.
    inputs
        Batches of the shapes to record.
    state
        Every tensor that a step changes; the steps taken to record it are undone.
    generators
        Sources of random numbers other than the device's own.
    beside
        A step whose memory this one uses as well: nothing that one replay leaves there is needed
        by the next.
    """

    def __init__(
        self,
        step: Callable[..., Tensor],
        inputs: Sequence[Batch],
        state: Callable[[], list[Tensor]],
        generators: Sequence[torch.Generator] = (),
        *,
        beside: CapturedStep | None = None,
    ) -> None:
        # Kept, because a replay writes to whatever the step refers to.
        self._step = step
        self.inputs = [map_tensors(torch.clone, batch) for batch in inputs]
        # Detached: a copy with a history would tie the weights to the stream it was made on.
        before = {tensor.data_ptr(): tensor.detach().clone() for tensor in _filled(state())}
        random = torch.cuda.get_rng_state()
        own = [generator.get_state() for generator in generators]
        side = _recording_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        try:
            with torch.cuda.stream(side):
                for _ in range(_CAPTURE_WARMUP):
                    step(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            pool = None if beside is None else beside.graph.pool()
            with torch.cuda.graph(self.graph, pool=pool, stream=side):
                self.terms = step(*self.inputs)
        except RuntimeError:
            # They would go on believing that a graph is being recorded.
            for generator in (_device_generator(), *generators):
                _renew(generator)
            raise
        finally:
            with torch.no_grad():
                for tensor in _filled(state()):
                    # Optimiser state that was not there becomes zero.
                    known = before.get(tensor.data_ptr())
                    tensor.zero_() if known is None else tensor.copy_(known)
            torch.cuda.set_rng_state(random)
            for generator, kept in zip(generators, own, strict=True):
                generator.set_state(kept)

    def fits(self, *inputs: Batch) -> bool:
        """Whether batches have the shapes that were recorded."""
        pairs = zip(self._tensors(self.inputs), self._tensors(inputs), strict=True)
        return all(recorded.shape == new.shape for recorded, new in pairs)

    def replay(self, *inputs: Batch) -> Tensor:
        """Train on the inputs; the terms."""
        for static, new in zip(self._tensors(self.inputs), self._tensors(inputs), strict=True):
            static.copy_(new)
        self.graph.replay()
        return self.terms.clone()

    @staticmethod
    def _tensors(inputs: Sequence[Batch]) -> list[Tensor]:
        return [tensor for batch in inputs for tensor in tensors_of(batch)]


@functools.cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    """Where steps are recorded: one of each device, for cuBLAS keeps memory for every stream."""
    return torch.cuda.Stream(device)


def _device_generator() -> torch.Generator:
    """The source of random numbers of the current device."""
    return torch.cuda.default_generators[torch.cuda.current_device()]


def _renew(generator: torch.Generator) -> None:
    """Give a generator a state that no graph knows."""
    generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())


def _filled(tensors: list[Tensor]) -> list[Tensor]:
    """Those that hold something: empty ones all have the same address."""
    return [tensor for tensor in tensors if tensor.numel()]


def optimizer_tensors(optimizer: Optimizer) -> list[Tensor]:
    """The tensors of an optimiser's state."""
    entries = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in entries if isinstance(value, Tensor)]


def rate_at(progress: float, lr: float, schedule: str) -> float:
    """The learning rate after a fraction of training."""
    if schedule == "constant":
        return lr
    falling = 0.5 * (1 + math.cos(math.pi * progress))
    rate = lr * (_LAST_RATE + (1 - _LAST_RATE) * falling)
    return rate * min(1.0, progress / _RISE) if schedule == "warm-cosine" else rate


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every group its share of the rate; in place where a captured step looks at it."""
    for group in optimizer.param_groups:
        scaled = rate * group["rate_scale"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled


def _described(learner: LieAugmenter | Unaugmented) -> dict[str, Any]:
    """The settings of an augmenter that its state does not hold."""
    if isinstance(learner, Unaugmented):
        return {"augmenter": None, "objective.absolute": learner.objective.absolute}
    return {
        "augmenter": type(learner).__name__,
        "action": type(learner.action).__name__,
        "output": type(learner.output).__name__,
        "n_views": learner.n_views,
        "n_factors": learner.n_factors,
        "sampler": str(learner.sampler),
        **{f"objective.{name}": value for name, value in asdict(learner.objective).items()},
    }


def _data_of(batches: Batches) -> dict[str, Any]:
    """What identifies the training data, as far as it is known without reading all of them again:
    of a stream the number of samples, of a DataLoader the number of batches.
    """
    if isinstance(batches, StreamBatches):
        return {"samples": batches.stream.count}
    if not isinstance(batches, TensorBatches):
        return {"batches": len(batches)}
    tensors = {str(i): t for i, t in enumerate([*tensors_of(batches.x), batches.y])}
    return {"samples": len(batches.y), "data": digest_of(tensors)[:12]}


def _warn_of_batch_norm(model: nn.Module) -> None:
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        warnings.warn(
            "The model has batch norm, which mixes the statistics of original and transformed "
            "samples in training; layer or group norm does not.",
            stacklevel=3,
        )


def lay_channels_last(module: nn.Module) -> None:
    """Store the weights of two-dimensional convolutions in the layout of the fast ones, in place.

    Not by ``Module.to``, which refuses weights of five axes. Where channels are convolved by
    themselves, as in an EfficientNet, all is slower in that layout, and left as it is.
    """
    layers = (layer for layer in module.modules() if isinstance(layer, nn.Conv2d))
    if any(layer.groups > 1 for layer in layers):
        return
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


def pick_device(device: str | torch.device) -> torch.device:
    """The device asked for; for ``"auto"`` a GPU if there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; choose from auto, cpu, cuda") from None
    if chosen.type == "meta":
        raise ValueError(f"device={str(device)!r} holds no numbers; choose from auto, cpu, cuda")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r}, but this machine has no usable CUDA device")
    return chosen


def make_optimizer(
    groups: list[dict[str, Any]],
    lr: float,
    device: torch.device,
    factory: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
) -> Optimizer:
    """Adam, or what `factory` makes, for the groups that have parameters to train."""
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError("neither the model nor the augmenter has a parameter to train")
    if factory is not None:
        made = factory(groups)
        # The schedule multiplies whatever rates the user's optimiser came with.
        for group in made.param_groups:
            group["rate_scale"] = float(group["lr"]) / lr
        return made
    for group in groups:
        group.setdefault("rate_scale", 1.0)
    groups = _merged(groups)
    if device.type == "cuda":
        rate = torch.tensor(lr, device=device)
        return torch.optim.Adam(groups, lr=rate, fused=True, capturable=True)
    return torch.optim.Adam(groups, lr=lr, fused=device.type == "cpu")


def _merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups with the same options as one: an optimiser's step costs a launch for each group."""
    merged: list[dict[str, Any]] = []
    for group in groups:
        options = {key: value for key, value in group.items() if key != "params"}
        for known in merged:
            if {key: value for key, value in known.items() if key != "params"} == options:
                known["params"] = [*known["params"], *group["params"]]
                break
        else:
            merged.append(dict(group))
    return merged


def trainable(module: nn.Module, **options: Any) -> dict[str, Any]:
    """The group of a module's parameters that are trained, with its options."""
    return {"params": [p for p in module.parameters() if p.requires_grad], **options}


@contextmanager
def _forked_rng(device: torch.device) -> Iterator[None]:
    """Seed freely inside; the caller's random state is untouched."""
    # Seeding reaches every GPU, so all of them are put back.
    devices = list(range(torch.cuda.device_count())) if device.type == "cuda" else []
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with torch.random.fork_rng(devices=devices), on_device:
        yield


@contextmanager
def _fastest_convolutions(search: bool) -> Iterator[None]:
    """Let cuDNN try its algorithms on the shapes at hand, if asked to."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or search
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def _graceful_interrupt() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question the loop asks; the second acts at once."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if current_thread() is not main_thread():
        yield lambda: False
        return
    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, previous)
