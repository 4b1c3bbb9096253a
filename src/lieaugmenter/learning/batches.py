"""Where batches come from: tensors kept on the device, streams, or any DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Protocol, Self

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader

from lieaugmenter.actions.base import Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.learning.streams import Piece, Stream, joined, pair, rows_of

# Data up to this fraction of the free memory of a GPU is kept there.
_SHARE_OF_DEVICE = 0.5
# Samples of a stream that are shuffled together, in number and in memory.
_SHUFFLED = 2**16
_SHUFFLED_BYTES = 2**28


class Batches(Protocol):
    """Batches of an epoch, in an order that the seed and the epoch determine.

    Attributes
    ----------
    shapes
        How many shapes full batches have: each is recorded once where steps are captured.
    repeats
        Whether an epoch can be read again, batch for batch.
    """

    shapes: int
    repeats: bool

    @property
    def size(self) -> int | None:
        """Samples of a full batch; None where batches come as they are."""
        ...

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        ...

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        """The batches of epoch `index`, leaving out the first `skip`."""
        ...


class TensorBatches:
    """Shuffled batches of tensors; the order of an epoch is a function of seed and epoch alone."""

    shapes = 1
    repeats = True

    def __init__(self, x: Batch, y: Tensor, size: int, *, seed: int, device: torch.device) -> None:
        n = batch_size(x)
        if len(y) != n:
            raise ValueError(f"X has {n} rows, y has {len(y)}")
        if n == 0:
            raise ValueError("X has no rows: there is nothing to learn from")
        home = device if _fits(x, y, device) else torch.device("cpu")
        self.x = map_tensors(lambda t: t.to(home), x)
        self.y = y.to(home)
        self.size = min(size, n)
        self.seed = seed
        self.device = device

    def reseeded(self, seed: int) -> Self:
        """The same samples, not copied, in the order of another seed."""
        other = copy(self)
        other.seed = seed
        return other

    def __len__(self) -> int:
        return -(-len(self.y) // self.size)

    def order(self, index: int) -> Int[Tensor, " n"]:
        """The order of the samples in epoch `index`."""
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        return torch.randperm(len(self.y), generator=rng).to(self.y.device)

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        order = self.order(index)
        for start in range(skip * self.size, len(order), self.size):
            chosen = order[start : start + self.size]
            x = map_tensors(lambda t, at=chosen: t[at].to(self.device, non_blocking=True), self.x)
            yield x, self.y[chosen].to(self.device, non_blocking=True)


class PaddedBatches(TensorBatches):
    """Shuffled batches of samples of similar size, cut to one of a few lengths.

    A sample goes to the shortest length that holds it. What does not fill a batch there moves up to
    the next length: only the last batch of an epoch may be smaller than the others, and full
    batches have few shapes. The order is a function of seed and epoch alone.

    Parameters
    ----------
    x
        Fields of shape (n, longest, …): real entries first, then padding.
    y, size, seed, device
        As for `TensorBatches`.
    counts
        Real entries of each sample.
    lengths
        The lengths to cut to, ascending.
    """

    def __init__(
        self,
        x: Batch,
        y: Tensor,
        size: int,
        *,
        counts: Int[Tensor, " n"],
        lengths: Sequence[int],
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(x, y, size, seed=seed, device=device)
        if list(lengths) != sorted(set(lengths)) or int(counts.max()) > lengths[-1]:
            raise ValueError(
                f"lengths={tuple(lengths)} must ascend, up to at least {int(counts.max())}"
            )
        self.lengths = tuple(lengths)
        self.shapes = len(self.lengths)
        self.bucket = torch.bucketize(counts.cpu(), torch.tensor(self.lengths))

    def plan(self, index: int) -> tuple[list[int], Int[Tensor, " n"]]:
        """The lengths of the batches of epoch `index`, and the order of its samples."""
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        order = torch.randperm(len(self.y), generator=rng)
        bucket = self.bucket[order]
        full: list[tuple[int, Tensor]] = []
        rest = order[:0]
        for number, length in enumerate(self.lengths):
            waiting = torch.cat([rest, order[bucket == number]])
            batches = len(waiting) // self.size
            chunks = waiting[: batches * self.size].view(batches, self.size)
            full += [(length, chunk) for chunk in chunks]
            rest = waiting[batches * self.size :]
        shuffled = [full[i] for i in torch.randperm(len(full), generator=rng).tolist()]
        if len(rest):
            shuffled.append((self.lengths[-1], rest))
        return [length for length, _ in shuffled], torch.cat([chunk for _, chunk in shuffled])

    def order(self, index: int) -> Int[Tensor, " n"]:
        return self.plan(index)[1].to(self.y.device)

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        lengths, order = self.plan(index)
        chunks = order.to(self.y.device).split(self.size)
        for length, chosen in list(zip(lengths, chunks, strict=True))[skip:]:
            x = map_tensors(
                lambda t, at=chosen, n=length: t[:, :n][at].to(self.device, non_blocking=True),
                self.x,
            )
            yield x, self.y[chosen].to(self.device, non_blocking=True)


class StreamBatches:
    """Shuffled batches of a stream; no more of it is in memory than is shuffled together.

    Pieces come in random order where the stream can give them so. As many of them as the buffer
    holds are shuffled together, and what does not fill a batch waits for the next ones. The order
    is a function of seed and epoch alone where the stream repeats.

    Parameters
    ----------
    stream
        The samples.
    size, seed, device
        As for `TensorBatches`.
    buffer
        Samples that are shuffled together, at least; fewer where they would take more than 256 MiB.
    """

    shapes = 1

    def __init__(
        self,
        stream: Stream,
        size: int,
        *,
        seed: int,
        device: torch.device,
        buffer: int = _SHUFFLED,
    ) -> None:
        if stream.count == 0:
            raise ValueError("the stream has no samples: there is nothing to learn from")
        self.stream = stream
        self.size = min(size, stream.count)
        self.seed = seed
        self.device = device
        self.buffer = buffer
        self.repeats = stream.repeats

    def __len__(self) -> int:
        return -(-self.stream.count // self.size)

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        for number, (piece, rows) in enumerate(self._chosen(index)):
            if number >= skip:
                x, y = rows_of(piece, rows)
                yield map_tensors(lambda t: t.to(self.device), x), y.to(self.device)

    def _chosen(self, index: int) -> Iterator[tuple[Piece, Tensor]]:
        """For each batch of an epoch what is shuffled together, and the rows of it to take."""
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        waiting: list[Piece] = []
        count = 0
        for piece in self.stream.pieces(rng):
            waiting.append(piece)
            count += len(piece[1])
            if count < self._enough(piece):
                continue
            whole = joined(waiting)
            order = torch.randperm(count, generator=rng)
            full, rest = order.split([count - count % self.size, count % self.size])
            yield from ((whole, rows) for rows in full.split(self.size) if len(rows))
            waiting, count = [rows_of(whole, rest)], len(rest)
        if count:
            whole = joined(waiting)
            for rows in torch.randperm(count, generator=rng).split(self.size):
                yield whole, rows

    def _enough(self, piece: Piece) -> int:
        """How many samples are shuffled together."""
        row = sum(t[:1].numel() * t.element_size() for t in [*tensors_of(piece[0]), piece[1]])
        return max(self.size, min(self.buffer, _SHUFFLED_BYTES // max(row, 1)))


class LoaderBatches:
    """Batches of a DataLoader that yields pairs (x, y); its own order and size.

    One without a length is read once to count its batches, because the learning-rate schedule and
    the progress bar need their number: it has to end.
    """

    shapes = 1
    size = None
    repeats = False

    def __init__(self, loader: DataLoader[Any], *, device: torch.device) -> None:
        try:
            self.length = len(loader)
        except TypeError:
            self.length = sum(1 for _ in loader)
        if not self.length:
            raise ValueError("the DataLoader has no batch (drop_last=True and few samples?)")
        self.loader = loader
        self.device = device

    def __len__(self) -> int:
        return self.length

    def epoch(self, index: int, skip: int = 0) -> Iterator[tuple[Batch, Tensor]]:
        for number, item in enumerate(self.loader):
            if number >= skip:
                x, y = pair(item)
                yield map_tensors(lambda t: t.to(self.device), x), y.to(self.device)


def _fits(x: Batch, y: Tensor, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    needed = sum(t.numel() * t.element_size() for t in [*tensors_of(x), y])
    free, _ = torch.cuda.mem_get_info(device)
    return needed < _SHARE_OF_DEVICE * free
