"""The loop of `fit`: steps, records, checkpoints, and what stops it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lieaugmenter.actions.base import Batch, map_tensors, tensors_of
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.averaging import in_chunks
from lieaugmenter.learning.batches import Batches
from lieaugmenter.learning.captured import CapturedStep
from lieaugmenter.learning.checkpoint import load_checkpoint, save_checkpoint
from lieaugmenter.learning.distributed import SharedLoss
from lieaugmenter.learning.labels import matched
from lieaugmenter.learning.objective import prediction_loss
from lieaugmenter.learning.optimizer import optimizer_tensors, rate_at, set_rate
from lieaugmenter.learning.progress import TextProgress
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.learning.weights import WeightAverage, save_weights
from lieaugmenter.processes import alike, any_process, mean_over_processes
from lieaugmenter.runs import RunFolder, fields_of, write_tensors

# Terms are looked at this often; every look waits for the device.
_LOOK_EVERY = 50
# Seconds after which a long epoch is kept as it is, where nobody says how often to save.
_SAVE_EVERY = 600.0
# This many steps skipped in a row are no accident any more.
_MOST_SKIPPED = 10


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


class _Progress(TypedDict):
    """What a checkpoint holds besides tensors."""

    epoch: int
    step: int
    sums: list[float]
    skipped: int
    skipped_in_a_row: int
    seconds: float
    records: list[dict[str, Any]]


class Trainer:
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
            begun = self.step
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
            if self.step == begun < len(self.batches):
                raise ValueError(
                    f"the data gave no batch in epoch {self.epoch + 1}: they are read once for "
                    f"every epoch, so that what gives them must begin anew each time"
                )
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
            before = _Moment(self.model, self.augmenter, self.device)
            try:
                terms = self._eager_step(x, y)
                if self.skipped_in_a_row:
                    # Running statistics of a batch that is not finite would never be finite again.
                    before.restore_buffers()
                return terms
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
            step = self.epoch * len(self.batches) + self.step
            yield from self.shared(x, y, self.chunk, step=step)
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
            f"{step + 1}.{inspect} {kept}. {self._remedy(step)}"
        )

    def _remedy(self, step: int) -> str:
        x, y = self._batch(step)
        numbers = [tensor for tensor in (*tensors_of(x), y) if tensor.is_floating_point()]
        if not all(bool(tensor.isfinite().all()) for tensor in numbers):
            return "The batch itself holds values that are not finite: drop or impute them"
        return (
            "Usual remedies: a smaller range of the coefficients, a longer warm-up, a smaller "
            "learning rate, inputs scaled to about 1"
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
        pair = matched(predictions, y.to(self.device))
        return float(prediction_loss(*pair, absolute=self.augmenter.objective.absolute))

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
                "skipped_in_a_row": self.skipped_in_a_row,
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
        # Older checkpoints do not say how many were skipped in a row.
        progress = {"skipped_in_a_row": 0} | progress
        progress = fields_of(_Progress, progress, self.run.checkpoint_path)
        self.epoch, self.step = progress["epoch"], progress["step"]
        self.sums, self.seconds = progress["sums"], progress["seconds"]
        self.skipped = progress["skipped"]
        self.skipped_in_a_row = progress["skipped_in_a_row"]
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
    """The state before a step that a failed one leaves changed: random numbers, the warm-up, and
    the model's buffers, such as running statistics of batch norm.
    """

    def __init__(
        self, model: nn.Module, augmenter: LieAugmenter | Unaugmented, device: torch.device
    ) -> None:
        self.augmenter = augmenter
        # Which cannot be told from their versions: batch norm does not count its changes.
        self.buffers = [
            (module, name, buffer, buffer.clone())
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self.steps_taken = augmenter.sampler.steps_taken
        self.random = torch.get_rng_state()
        self.device_random = torch.cuda.get_rng_state() if device.type == "cuda" else None

    def restore(self) -> None:
        self.restore_buffers()
        self.augmenter.sampler.step.fill_(self.steps_taken)
        self.augmenter.recount()
        torch.set_rng_state(self.random)
        if self.device_random is not None:
            torch.cuda.set_rng_state(self.device_random)

    @torch.no_grad()
    def restore_buffers(self) -> None:
        for module, name, buffer, values in self.buffers:
            # Constants may be views that cannot be written to.
            if not torch.equal(buffer, values):
                buffer.copy_(values)
            # A forward pass may have put another tensor in its place.
            setattr(module, name, buffer)
