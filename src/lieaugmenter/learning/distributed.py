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
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.objective import Loss
from lieaugmenter.learning.streams import hashes
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.runs import process_number


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


def process_count() -> int:
    """How many processes train together; 1 where there is just this one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def wait_for_all() -> None:
    """Go on when all processes have come here."""
    if process_count() > 1:
        dist.barrier()


def from_first(values: Tensor) -> Tensor:
    """What the first process has in place of this, whatever its shape; of the same device and type.

    Decisions are taken this way where processes might come to different ones.
    """
    if process_count() == 1:
        return values
    axes = torch.tensor([values.ndim], device=values.device)
    dist.broadcast(axes, 0)
    shape = torch.zeros(int(axes), dtype=torch.int64, device=values.device)
    if process_number() == 0:
        shape.copy_(torch.tensor(values.shape))
    dist.broadcast(shape, 0)
    same = values.contiguous() if process_number() == 0 else values.new_zeros(shape.tolist())
    dist.broadcast(same, 0)
    return same


def number_from_first(number: int) -> int:
    """A whole number as the first process has it."""
    return int(from_first(torch.tensor(number)))


def mean_over_processes(values: Tensor) -> Tensor:
    """The mean of what all processes have."""
    values = values.clone()
    dist.all_reduce(values)
    return values / process_count()


def any_process(asked: bool) -> bool:
    """Whether any process says yes."""
    answer = torch.tensor(int(asked))
    dist.all_reduce(answer, dist.ReduceOp.MAX)
    return bool(answer)


def alike(values: Tensor) -> bool:
    """Whether all processes have the same numbers, to the bit."""
    lowest, highest = values.clone(), values.clone()
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    return torch.equal(lowest, highest)


def is_lost_connection(error: RuntimeError) -> bool:
    """Whether an error says that another process has gone."""
    return process_count() > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error))


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
        self.augmenter = augmenter
        self.joint = DistributedDataParallel(_Joint(model, augmenter, predict))
        self._checked = False

    def __call__(self, x: Batch, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss to descend from in this process, and the terms, without gradient.

        Both are weighed such that their mean over processes is that of the whole batch.
        """
        if not self._checked:
            _check_same_batch(x, y)
            self._checked = True
        n = batch_size(x)
        rows, weight = rows_of_process(n)
        with self.augmenter.part_of(rows.start, n):
            loss = self.joint(map_tensors(lambda t: t[rows], x), y[rows])
        return loss * weight, loss.parts.values_tensor * weight


class _Joint(nn.Module):
    """Network and augmenter as one module, so that the gradients of both are averaged."""

    def __init__(
        self,
        model: nn.Module,
        augmenter: LieAugmenter | Unaugmented,
        predict: Callable[[Batch], Tensor],
    ) -> None:
        super().__init__()
        self.model, self.augmenter, self.predict = model, augmenter, predict

    def forward(self, x: Batch, y: Tensor) -> Loss:
        return self.augmenter.loss(self._predict, x, y)

    def _predict(self, x: Batch) -> Tensor:
        with _own_randomness(self.augmenter.term_weights.device):
            return self.predict(x)


@contextmanager
def _own_randomness(device: torch.device) -> Iterator[None]:
    """Let a network draw numbers of its own in each process, for dropout say.

    The state that all processes share goes on as if nothing had been drawn: the elements of the
    next step come from it.
    """
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(torch.randint(2**62, ())) + process_number())
        yield


def _check_same_batch(x: Batch, y: Tensor) -> None:
    keys = torch.from_numpy(hashes(x, y).view("int64"))
    sizes = torch.tensor(len(y))
    if not (alike(sizes) and alike(keys)):
        raise ValueError(
            "the processes have different batches; all of them must be given the same data in the "
            "same order (a DataLoader without a DistributedSampler), for they share every batch"
        )
