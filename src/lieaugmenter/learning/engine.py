"""fit(): train a predictor and an augmenter together, on a CPU or a GPU."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import current_thread, main_thread
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from lieaugmenter.actions.base import Batch, tensors_of
from lieaugmenter.learning.arguments import (
    check_pair,
    check_schedule,
    length_of_training,
    seed_of_training,
)
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.batches import Batches, LoaderBatches, StreamBatches, TensorBatches
from lieaugmenter.learning.devices import (
    fastest_convolutions,
    forked_rng,
    lay_channels_last,
    pick_device,
)
from lieaugmenter.learning.distributed import SharedLoss
from lieaugmenter.learning.optimizer import OPTIMIZERS, make_optimizer, trainable
from lieaugmenter.learning.progress import TextProgress
from lieaugmenter.learning.streams import Stream, as_stream
from lieaugmenter.learning.trainer import History, Trainer
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.learning.weights import WeightAverage
from lieaugmenter.processes import number_from_first, process_count, process_number
from lieaugmenter.runs import RunError, RunFolder, digest_of, versions

NON_FINITE = ("skip", "stop")
PRECISIONS = ("bf16", "float32")


def fit(
    model: nn.Module,
    augmenter: LieAugmenter | Unaugmented | None,
    train: tuple[Batch, Tensor] | DataLoader[Any] | Dataset[Any] | Stream | TensorBatches,
    *,
    validation: tuple[Batch, Tensor] | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    lr: float = 1e-3,
    schedule: str = "cosine",
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] | str = "adam",
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
        own order; a `Stream` or a Dataset of pairs, which are read piece by piece and
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
        ``"adam"``; ``"muon"``, see `Muon`, which learns wide networks in fewer steps; or a
        function that makes one from parameter groups.
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
    check_schedule(schedule)
    if on_non_finite not in NON_FINITE:
        raise ValueError(
            f"unknown on_non_finite {on_non_finite!r}; choose from {', '.join(NON_FINITE)}"
        )
    epochs, batch_size, lr = length_of_training(epochs, batch_size, lr)
    seed, average = seed_of_training(seed), float(average)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk={chunk}: at least one sample is needed at a time")
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
            others = ", a DataLoader, a Dataset or a Stream of them" if name == "train" else ""
            kinds = f"a pair (x, y) of tensors{others}"
            raise TypeError(f"{name} is a {type(data).__name__}; expected {kinds}")
        if pair:
            check_pair(name, data)
    if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {optimizer!r}; choose from {', '.join(OPTIMIZERS)}")
    if isinstance(optimizer, Optimizer):
        raise TypeError(
            f"optimizer is an {type(optimizer).__name__}; give a function that makes one of "
            f"parameter groups: lambda groups: torch.optim.{type(optimizer).__name__}(groups, …)"
        )
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
    with forked_rng(where), nullcontext() if run is None else run.alone():
        torch.manual_seed(seed)
        batches = _batches(train, batch_size, seed, where)
        model.to(where)
        if where.type == "cpu" or precision == "bf16":
            lay_channels_last(model)
        learner.to(where)
        groups = [trainable(model), trainable(learner, **learner.optimizer_options)]
        made = make_optimizer(groups, lr, where, optimizer)
        trainer = Trainer(model, learner, batches, made)
        trainer.epochs, trainer.lr, trainer.schedule = epochs, lr, schedule
        trainer.precision, trainer.run, trainer.on_epoch = precision, run, on_epoch
        trainer.chunk, trainer.on_non_finite = chunk, on_non_finite
        # A rate that is a plain number would be frozen into the graph; and what is recorded is
        # one chunk, shares nothing with other processes, and never asks whether to skip.
        plain = chunk is None and on_non_finite == "stop" and not together
        known = isinstance(optimizer, str)
        trainer.capture = capture and where.type == "cuda" and known and plain
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
                **learner.construction,
                **_data_of(batches),
            }
        if where.type == "cuda":
            # What is recorded is of this training, not of those before it.
            torch.cuda.reset_peak_memory_stats(where)
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
            with fastest_convolutions(compile), _graceful_interrupt() as interrupted:
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
