"""What processes that train together, see `learning.distributed`, have to tell each other.

All of these are asked by all processes at the same place. Where there is just one, they answer for
it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """How many processes train together; 1 where there is just this one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_number() -> int:
    """Which of the processes that train together this is; 0 where it is the only one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


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


def done_by_first(task: Callable[[], None], refusal: type[ValueError]) -> None:
    """Let the first process do something; where it is refused, all processes are.

    Parameters
    ----------
    task
        What to do.
    refusal
        The error with which it may be refused: raised in every process, with the same message.
    """
    refused: ValueError | None = None
    if process_number() == 0:
        try:
            task()
        except refusal as error:
            refused = error
    words = "" if refused is None else str(refused)
    told = from_first(torch.tensor(list(words.encode()), dtype=torch.uint8))
    if refused is not None:
        raise refused
    if len(told):
        raise refusal(bytes(told.tolist()).decode())


def mean_over_processes(values: Tensor) -> Tensor:
    """The mean of what all processes have."""
    if process_count() == 1:
        return values
    values = values.clone()
    dist.all_reduce(values)
    return values / process_count()


def any_process(asked: bool) -> bool:
    """Whether any process says yes."""
    if process_count() == 1:
        return asked
    answer = torch.tensor(int(asked))
    dist.all_reduce(answer, dist.ReduceOp.MAX)
    return bool(answer)


def alike(values: Tensor) -> bool:
    """Whether all processes have the same numbers, to the bit."""
    if process_count() == 1:
        return True
    lowest, highest = values.clone(), values.clone()
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    return torch.equal(lowest, highest)


def is_lost_connection(error: RuntimeError) -> bool:
    """Whether an error says that another process has gone."""
    return process_count() > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error))
