"""Data that are read piece by piece, for when they do not fit into memory.

Whether a sample is held out, and in which half of the data it lies, follows from what it holds, by
a hash: the same for any order of reading, in every process, and copies of a sample are never on
both sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sized
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lieaugmenter.actions.base import Batch, batch_size, map_tensors, tensors_of

# Inputs and targets of a few samples.
Piece: TypeAlias = tuple[Batch, Tensor]
# Samples of a Dataset that are read at once.
_AT_ONCE = 1024


class Stream(ABC):
    """Samples that are read piece by piece, as often as needed.

    Subclasses give `pieces`.

    Attributes
    ----------
    repeats
        Whether the same source of randomness gives the same pieces in the same order again.
    """

    repeats = True

    @abstractmethod
    def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
        """All pieces once: in random order if given a source of randomness and able to."""

    @cached_property
    def count(self) -> int:
        """Number of samples; where nothing else tells, by reading all of them."""
        return sum(len(y) for _, y in self.pieces())

    def map(self, function: Callable[[Batch, Tensor], Piece]) -> Stream:
        """The same samples, each piece changed by a function."""
        return _Mapped(self, function)

    def where(self, keep: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> Stream:
        """The samples whose hashes, see `hashes`, a function keeps."""
        return _Kept(self, keep, seed)


class _Mapped(Stream):
    def __init__(self, stream: Stream, function: Callable[[Batch, Tensor], Piece]) -> None:
        self.stream, self.function, self.repeats = stream, function, stream.repeats

    def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
        for piece in self.stream.pieces(rng):
            yield self.function(*piece)

    @cached_property
    def count(self) -> int:
        return self.stream.count


class _Kept(Stream):
    def __init__(self, stream: Stream, keep: Callable[[np.ndarray], np.ndarray], seed: int) -> None:
        self.stream, self.keep, self.seed, self.repeats = stream, keep, seed, stream.repeats

    def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
        for x, y in self.stream.pieces(rng):
            kept = torch.from_numpy(np.flatnonzero(self.keep(hashes(x, y, self.seed))))
            if len(kept):
                yield rows_of((x, y), kept)


class LoaderStream(Stream):
    """The batches of a DataLoader that yields pairs (x, y), in its own order."""

    repeats = False

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
        for item in self.loader:
            yield pair(item)

    @cached_property
    def count(self) -> int:
        """Number of samples: of those that are drawn one by one, as many as the sampler says."""
        loader = self.loader
        one_by_one = loader.batch_size is not None and not loader.drop_last
        if one_by_one and isinstance(loader.sampler, Sized):
            return len(loader.sampler)
        return super().count


def as_stream(data: object) -> Stream | None:
    """Streams, DataLoaders and Datasets of pairs as a stream; None for anything else."""
    if isinstance(data, Stream):
        return data
    if isinstance(data, DataLoader):
        return LoaderStream(data)
    if isinstance(data, IterableDataset):
        return LoaderStream(DataLoader(data, batch_size=_AT_ONCE))
    if isinstance(data, Dataset):
        return LoaderStream(DataLoader(data, batch_size=_AT_ONCE, shuffle=True))
    return None


def pair(item: object) -> Piece:
    """What a DataLoader yields, which has to be a pair (x, y)."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError("the data must come as pairs (x, y); wrap the dataset so that they do")
    return item[0], item[1]


def rows_of(piece: Piece, rows: Tensor) -> Piece:
    """Some samples of a piece."""
    x, y = piece
    return map_tensors(lambda t: t[rows], x), y[rows]


def joined(pieces: list[Piece]) -> Piece:
    """Pieces one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*(tensors_of(x) for x, _ in pieces), strict=True)
    fields = iter([torch.cat(column) for column in columns])
    return map_tensors(lambda _: next(fields), pieces[0][0]), torch.cat([y for _, y in pieces])


def hashes(x: Batch, y: Tensor | None = None, seed: int = 0) -> np.ndarray:
    """A number for each sample, (n,) of uint64: uniform, and a function of its values and a seed.

    Without y it is one of the inputs alone.

    Examples
    --------
    >>> x, y = torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]), torch.zeros(3)
    >>> first, second, copy = hashes(x, y).tolist()
    >>> first == copy, first == second
    (True, False)
    """
    n = batch_size(x)
    total = np.full(n, seed % 2**64, dtype=np.uint64)
    fields = tensors_of(x) if y is None else [*tensors_of(x), y]
    for number, tensor in enumerate(fields):
        values = tensor.detach()
        if values.is_floating_point() and values.element_size() == 2:
            values = values.view(torch.int16)  # their bits: NumPy has no bfloat16
        words = np.ascontiguousarray(values.cpu().numpy().reshape(n, -1))
        words = words.view(np.uint32) if words.itemsize % 4 == 0 else words.astype(np.uint32)
        total = _mixed(total + words.astype(np.uint64) @ _multipliers(words.shape[1], number))
    return total


@lru_cache(maxsize=16)
def _multipliers(count: int, number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    return rng.integers(2**64, size=count, dtype=np.uint64) | np.uint64(1)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The last step of SplitMix64: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Reservoir:
    """A random subset of a stream, up to a size: the samples whose hashes are the smallest.

    Parameters
    ----------
    most
        Samples to keep, in number.
    most_bytes
        And in memory.
    seed
        Of the hashes: other seeds keep other samples.

    Attributes
    ----------
    keys
        Hashes of what is kept, ascending, once `settle` was called.
    """

    def __init__(self, most: int, *, most_bytes: int = 2**28, seed: int = 0) -> None:
        self.most, self.most_bytes, self.seed = most, most_bytes, seed
        self.keys = np.empty(0, dtype=np.uint64)
        self._largest = np.uint64(2**64 - 1)
        self._pieces: list[Piece] = []

    def add(self, x: Batch, y: Tensor, keys: np.ndarray | None = None) -> None:
        """Look at a piece; `keys` are its hashes, where they are known."""
        keys = hashes(x, y, self.seed) if keys is None else keys
        chosen = np.flatnonzero(keys <= self._largest)
        if not len(chosen):
            return
        self._pieces.append(rows_of((x, y), torch.from_numpy(chosen)))
        self.keys = np.concatenate([self.keys, keys[chosen]])
        if len(self.keys) > 2 * self._room:
            self.settle()

    @property
    def _room(self) -> int:
        row = sum(t[:1].numel() * t.element_size() for t in tensors_of(self._pieces[0][0]))
        return max(1, min(self.most, self.most_bytes // max(row, 1)))

    def settle(self) -> Piece:
        """The subset, in the order of its hashes, which is a random one."""
        if not self._pieces:
            raise ValueError("the data have no samples")
        order = np.argsort(self.keys, kind="stable")[: self._room]
        self.keys = self.keys[order]
        if len(order) == self._room:
            self._largest = self.keys[-1]
        self._pieces = [rows_of(joined(self._pieces), torch.from_numpy(order))]
        return self._pieces[0]
