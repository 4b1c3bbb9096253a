"""Data that are read piece by piece: every sample once, well shuffled, the same again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lieaugmenter import LieAugmenter, fit
from lieaugmenter.learning.batches import StreamBatches
from lieaugmenter.learning.streams import Piece, Reservoir, Stream, as_stream, hashes
from lieaugmenter.runs import RunFolder

CPU = torch.device("cpu")


class Pieces(Stream):
    """Tensors cut into pieces that can be read in any order."""

    def __init__(self, x: Tensor, y: Tensor, rows: int = 50) -> None:
        self.x, self.y, self.rows = x, y, rows

    def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
        cut = list(zip(self.x.split(self.rows), self.y.split(self.rows), strict=True))
        order = torch.arange(len(cut)) if rng is None else torch.randperm(len(cut), generator=rng)
        for number in order.tolist():
            yield cut[number]


class Samples(IterableDataset):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(self.x, self.y, strict=True)


def numbered(n: int) -> Pieces:
    numbers = torch.arange(n, dtype=torch.float32)
    return Pieces(numbers.unsqueeze(1), numbers)


def ring(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(7))
    return x, x.norm(dim=1, keepdim=True)


def build() -> tuple[nn.Module, LieAugmenter]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, LieAugmenter(dim=2, output="invariant", n_views=3, warmup_steps=0)


def test_an_epoch_has_every_sample_once_in_full_batches() -> None:
    batches = StreamBatches(numbered(1003), 64, seed=0, device=CPU, buffer=200)
    found = [y for _, y in batches.epoch(0)]
    assert len(found) == len(batches) == 16
    assert {len(y) for y in found[:-1]} == {64}
    assert torch.cat(found).sort().values.tolist() == list(range(1003))


def test_inputs_stay_with_their_targets() -> None:
    for x, y in StreamBatches(numbered(500), 32, seed=0, device=CPU, buffer=100).epoch(0):
        assert torch.equal(x.squeeze(1), y)


def test_batches_of_sorted_data_are_mixed() -> None:
    """The mean of a batch of sorted numbers is close to that of all, and neighbours part."""
    batches = StreamBatches(numbered(10_000), 100, seed=0, device=CPU, buffer=2_000)
    means = torch.stack([y.mean() for _, y in batches.epoch(0)])
    # 40 of 200 pieces are shuffled together: the deviation of a mean of pieces, and of a batch.
    assert float((means - 5_000).abs().max()) < 5 * 10_000 / 12**0.5 * (1 / 40 + 1 / 100) ** 0.5
    order = torch.cat([y for _, y in batches.epoch(0)])
    assert float((order.diff().abs() < 2).float().mean()) < 0.01


def test_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[float]:
        batches = StreamBatches(numbered(300), 32, seed=seed, device=CPU, buffer=100)
        return torch.cat([y for _, y in batches.epoch(epoch)]).tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_skipping_leaves_out_the_first_batches() -> None:
    batches = StreamBatches(numbered(300), 32, seed=0, device=CPU, buffer=100)
    whole = [y for _, y in batches.epoch(2)]
    rest = [y for _, y in batches.epoch(2, skip=4)]
    assert all(torch.equal(a, b) for a, b in zip(whole[4:], rest, strict=True))


@pytest.mark.parametrize("kind", ["stream", "iterable", "loader"])
def test_fit_learns_from_data_without_a_length(kind: str) -> None:
    x, y = ring(600)
    train = {
        "stream": Pieces(x, y),
        "iterable": Samples(x, y),
        "loader": DataLoader(Samples(x, y), batch_size=64),
    }[kind]
    model, augmenter = build()
    history = fit(model, augmenter, train, epochs=8, lr=1e-2, progress=False, device="cpu")
    losses = history.column("prediction")
    assert len(losses) == 8
    assert losses[-1] < losses[0] / 2


def test_interrupted_stream_resumes_to_the_bit(tmp_path: Path) -> None:
    stream = Pieces(*ring(400))

    def trained(run: RunFolder | None, stop_after: int | None, resume: bool = False) -> Tensor:
        model, augmenter = build()

        class Stops(nn.Module):
            calls = 0

            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x: Tensor) -> Tensor:
                Stops.calls += 1
                if Stops.calls == stop_after:
                    import signal

                    signal.raise_signal(signal.SIGINT)
                return self.model(x)

        options = {"epochs": 3, "batch_size": 32, "progress": False, "device": "cpu"}
        fit(Stops(), augmenter, stream, run=run, resume=resume, **options)
        return torch.cat([p.detach().flatten() for p in (*model.parameters(), augmenter.basis.raw)])

    whole = trained(None, None)
    run = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(KeyboardInterrupt):
        trained(run, 18)
    assert torch.equal(trained(run, None, resume=True), whole)


def test_hashes_follow_from_the_values_alone() -> None:
    x, y = ring(1000)
    order = torch.randperm(1000)
    assert np.array_equal(hashes(x, y)[order], hashes(x[order], y[order]))
    assert len(set(hashes(x, y).tolist())) == 1000
    assert not np.array_equal(hashes(x, y), hashes(x, y, seed=1))


def test_hashes_are_uniform_also_for_whole_numbers() -> None:
    x = torch.arange(10_000).unsqueeze(1)
    keys = hashes(x, torch.zeros(10_000, dtype=torch.int64))
    counts = np.bincount((keys >> np.uint64(60)).astype(int), minlength=16)
    assert np.abs(counts - 625).max() < 5 * 625**0.5
    assert abs(int((keys & np.uint64(1)).sum()) - 5000) < 5 * 50


def test_parts_of_a_stream_are_disjoint_and_complete() -> None:
    stream = numbered(1000)

    def part(side: int) -> set[float]:
        kept = stream.where(lambda keys: keys & np.uint64(1) == side)
        assert kept.count == sum(len(y) for _, y in kept.pieces())
        return set(torch.cat([y for _, y in kept.pieces()]).tolist())

    assert part(0) | part(1) == set(range(1000))
    assert not part(0) & part(1)
    assert abs(len(part(0)) - 500) < 5 * 250**0.5


def test_reservoir_is_a_random_subset_whatever_the_order() -> None:
    x, y = numbered(5000).x, numbered(5000).y

    def subset(order: Tensor, seed: int = 0) -> Tensor:
        reservoir = Reservoir(300, seed=seed)
        for part in order.split(700):
            reservoir.add(x[part], y[part])
        return reservoir.settle()[1]

    sorted_order, shuffled = torch.arange(5000), torch.randperm(5000)
    assert torch.equal(subset(sorted_order), subset(shuffled))
    assert len(set(subset(sorted_order).tolist())) == 300
    assert abs(float(subset(sorted_order).mean()) - 2500) < 5 * 5000 / 12**0.5 / 300**0.5
    assert not torch.equal(subset(sorted_order), subset(sorted_order, seed=1))


def test_reservoir_is_bounded_in_memory_too() -> None:
    x, y = ring(1000)
    reservoir = Reservoir(300, most_bytes=40 * 8)
    for piece in zip(x.split(100), y.split(100), strict=True):
        reservoir.add(*piece)
    assert len(reservoir.settle()[1]) == 40


def test_only_streams_are_streams() -> None:
    x, y = ring(4)
    assert as_stream((x, y)) is None
    assert as_stream(x.numpy()) is None
    loader = as_stream(DataLoader(TensorDataset(x, y), batch_size=2))
    assert loader is not None
    assert loader.count == 4
