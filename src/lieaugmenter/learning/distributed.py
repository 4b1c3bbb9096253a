"""Training on several GPUs or machines: one process for each, started by torchrun.

All processes go through the same program with the same seed. They share every batch: each takes its
rows, and `DistributedDataParallel` averages the gradients, of the network and of the generators.
Each process draws the random elements of the whole batch, which costs next to nothing beside the
network, and keeps those of its rows. So the samples of different processes see different elements,
all processes together see those that one process alone would have drawn, and a run can go on with
another number of processes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.labels import check_all_count
from lieaugmenter.learning.objective import Loss
from lieaugmenter.learning.streams import hashes
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.processes import alike, process_count, process_number


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that torchrun started for the time of a block; without it, do nothing.

    With GPUs each process takes the one of its local rank.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        dist.init_process_group("cpu:gloo,cuda:nccl")
    else:
        dist.init_process_group("gloo")
    yield
    # Not after an error: others may still wait for an answer that will not come.
    dist.barrier()
    # What still refers to the group would outlive it, and end the process with an abort.
    gc.collect()
    dist.destroy_process_group()


def rows_of_process(n: int) -> tuple[slice, float]:
    """The rows of a batch that this process takes, and the weight of their mean in that of all.

    A batch with fewer rows than there are processes is taken whole by every one.

    Examples
    --------
    >>> rows_of_process(64)
    (slice(0, 64, None), 1.0)
    """
    count, number = process_count(), process_number()
    if n < count:
        return slice(0, n), 1.0
    rows = slice(number * n // count, (number + 1) * n // count)
    return rows, (rows.stop - rows.start) * count / n


class SharedLoss:
    """The loss of batches that all processes share.

    Parameters
    ----------
    model, augmenter
        What is trained; the first process gives its values to the others.
    predict
        How the model is called.
    """

    def __init__(
        self,
        model: nn.Module,
        augmenter: LieAugmenter | Unaugmented,
        predict: Callable[[Batch], Tensor],
    ) -> None:
        self.augmenter, self.predict = augmenter, predict
        self.joint = DistributedDataParallel(_Joint(model, augmenter))
        self._checked = False

    def __call__(
        self, x: Batch, y: Tensor, chunk: int | None = None, *, step: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The losses to descend from in this process, and their terms, without gradient.

        The means over processes of their sums are those of the whole batch. Each has to be taken
        backward before the next is asked for; with the last, gradients are averaged.

        Parameters
        ----------
        x, y
            A batch, the same in all processes.
        chunk
            Samples for one loss; all that are this process's unless given.
        step
            Of training: what the network draws itself, for dropout say, differs from step to step.
        """
        if not self._checked:
            _check_same_batch(x, y)
            self._checked = True
        check_all_count(y)
        n = batch_size(x)
        rows, weight = rows_of_process(n)
        own, labels = map_tensors(lambda t: t[rows], x), y[rows]
        size = len(labels) if chunk is None else min(chunk, len(labels))
        with self.augmenter.part_of(rows.start, n):
            losses = self._losses(own, labels, size, step)
            for first in range(0, len(labels), size):
                last = first + size >= len(labels)
                with nullcontext() if last else self.joint.no_sync():
                    loss = self.joint(losses)
                    yield loss * weight, loss.parts.values_tensor * weight

    def _losses(self, x: Batch, y: Tensor, size: int, step: int) -> Iterator[Loss]:
        number = count()

        def model(batch: Batch) -> Tensor:
            with _own_randomness(self.augmenter.term_weights.device, step, next(number)):
                return self.predict(batch)

        if size < len(y):
            yield from self.augmenter.loss_in_chunks(model, x, y, size)
        else:
            yield self.augmenter.loss(model, x, y)


class _Joint(nn.Module):
    """Network and augmenter as one module, so that the gradients of both are averaged."""

    def __init__(self, model: nn.Module, augmenter: LieAugmenter | Unaugmented) -> None:
        super().__init__()
        self.model, self.augmenter = model, augmenter

    def forward(self, losses: Iterator[Loss]) -> Loss:
        return next(losses)


@contextmanager
def _own_randomness(device: torch.device, step: int, call: int) -> Iterator[None]:
    """Let a network draw numbers of its own in each process, step and call of a step.

    The state that all processes share goes on as if nothing had been drawn: the elements of the
    next step come from it. It may stand still from step to step, where there are no elements or
    a GPU draws them, so that the number of the step has to count.
    """
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        shared = int(torch.randint(2**62, ()))
        own = np.random.SeedSequence((shared, step, call, process_number()))
        torch.manual_seed(int(own.generate_state(1, np.uint64)[0]))
        yield


def _check_same_batch(x: Batch, y: Tensor) -> None:
    keys = torch.from_numpy(hashes(x, y).view("int64"))
    sizes = torch.tensor(len(y))
    if not (alike(sizes) and alike(keys)):
        raise ValueError(
            "the processes have different batches; all of them must be given the same data in the "
            "same order (a DataLoader without a DistributedSampler), for they share every batch"
        )
