"""Data that are read piece by piece: every sample once, well shuffled, the same again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from lieaugmenter import (
    InvariantAction,
    LieAugmenter,
    SymmetryClassifier,
    SymmetryRegressor,
    VectorAction,
    fit,
)
from lieaugmenter.analysis.polarization import polarize
from lieaugmenter.data.checkup import Survey, examine
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.data.streaming import stream_data
from lieaugmenter.learning.batches import StreamBatches
from lieaugmenter.learning.streams import Piece, Reservoir, Stream, as_stream, hashes
from lieaugmenter.runs import RunError, RunFolder

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


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_numbers_in_half_precision_have_hashes_of_their_own(kind: torch.dtype) -> None:
    """All of them below 1, whose whole part is 0."""
    x = torch.linspace(0, 0.99, 50).to(kind).unique()
    assert len(set(hashes(x[:, None], torch.zeros(len(x))).tolist())) == len(x)
    assert len(set(hashes(torch.zeros(len(x), 1), x.requires_grad_()).tolist())) == len(x)


class Read(Dataset[tuple[Tensor, Tensor]]):
    """Twenty pairs that count how often they are read."""

    def __init__(self) -> None:
        self.times = 0

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.times += 1
        return torch.full((2,), float(index)), torch.tensor([float(index)])


def test_a_dataset_with_a_length_is_not_read_to_be_counted() -> None:
    data = Read()
    fit(nn.Linear(2, 1), None, data, epochs=1, lr=1e-6, device="cpu", progress=False)
    assert data.times == 20


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 8},
        {"batch_size": 8, "drop_last": True},
        {"batch_size": 8, "sampler": RandomSampler(range(20), num_samples=7)},
        {"batch_sampler": [[0, 1], [2, 3, 4]]},
    ],
)
def test_a_loader_counts_the_samples_that_it_gives(options: dict) -> None:
    stream = as_stream(DataLoader(Read(), **options))
    assert stream is not None
    assert stream.count == sum(len(y) for _, y in stream.pieces())


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


# -- files -----------------------------------------------------------------------------------------


def save_parquet(path: Path, columns: dict[str, np.ndarray], rows: int = 100) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path, row_group_size=rows)


def radial(n: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, 2)) * 3
    return x, np.hypot(x[:, 0], x[:, 1])


def whole(stream: Stream) -> Piece:
    pieces = list(stream.pieces())
    assert len(pieces) > 1
    return torch.cat([x for x, _ in pieces]), torch.cat([y for _, y in pieces])


def test_files_give_their_rows_piece_by_piece(tmp_path: Path) -> None:
    x, y = radial(5000)
    save_parquet(tmp_path / "d.parquet", {"a": x[:, 0], "r": y, "b": x[:, 1]})
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    table = stream_data(tmp_path / "d.parquet", "r")
    arrays = stream_data(tmp_path / "x.npy", str(tmp_path / "y.npy"))
    assert table.feature_names == ["a", "b"]
    for stream in (table, arrays):
        assert stream.count == 5000
        found_x, found_y = whole(stream)
        assert torch.equal(found_x, torch.from_numpy(x).float())
        assert torch.equal(found_y, torch.from_numpy(y).float())


def test_pieces_of_a_file_come_in_random_order(tmp_path: Path) -> None:
    save_parquet(tmp_path / "d.parquet", {"a": np.arange(1000.0), "y": np.arange(1000.0)})
    stream = stream_data(tmp_path / "d.parquet")

    def firsts(seed: int) -> list[float]:
        rng = torch.Generator().manual_seed(seed)
        return [float(y[0]) for _, y in stream.pieces(rng)]

    assert sorted(firsts(0)) == [100.0 * i for i in range(10)]
    assert firsts(0) == firsts(0) != firsts(1)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("category", ["u", "v"]),
        ("category of numbers", [3, 5]),
        ("decimal", [1.5, 2.25]),
        ("bool", [True, False]),
        ("date", None),
        ("nothing", None),
    ],
)
def test_parquet_means_the_same_read_whole_and_in_pieces(
    tmp_path: Path, kind: str, target: list[Any] | None
) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "category": pa.array(["u", "v"]).dictionary_encode(),
        "category of numbers": pa.array([3, 5]).dictionary_encode(),
        "decimal": pa.array([Decimal("1.50"), Decimal("2.25")]),
        "bool": pa.array([True, False]),
        "date": pa.array([1, 2], pa.date32()),
        "nothing": pa.nulls(2),
    }
    path = tmp_path / "d.parquet"
    parquet.write_table(pa.table({"a": [0.5, 1.5], "y": columns[kind]}), path)
    if target is None:
        for read in (read_data, stream_data):
            with pytest.raises(DataError, match="column 'y' holds"):
                read(path)
        return
    stream = stream_data(path)
    _, y = next(stream.pieces())
    assert read_data(path).y.tolist() == target
    assert (y.numpy() if stream.labels is None else stream.labels[y]).tolist() == target


def test_words_become_numbers_of_sorted_labels(tmp_path: Path) -> None:
    words = np.array(["out", "in", "far"] * 1700)
    save_parquet(tmp_path / "d.parquet", {"a": np.arange(5100.0), "y": words})
    np.save(tmp_path / "x.npy", np.arange(5100.0)[:, None])
    np.save(tmp_path / "y.npy", words)
    for stream in (
        stream_data(tmp_path / "d.parquet"),
        stream_data(tmp_path / "x.npy", str(tmp_path / "y.npy")),
    ):
        assert stream.labels is not None
        assert stream.labels[whole(stream)[1]].tolist() == words.tolist()


@pytest.mark.parametrize(
    ("columns", "target", "message"),
    [
        ({"a": [1.0], "y": [1.0]}, "z", "no column 'z'; the file has a, y"),
        ({"a": ["one"], "y": [1.0]}, "y", "column 'a' holds"),
        ({"y": [1.0]}, "y", "no column is left for X"),
        ({"a": [], "y": []}, "y", "has no rows"),
        ({"a": [1.0, 2.0], "y": [1, None]}, "y", "the target 'y' is empty in 1 rows"),
    ],
)
def test_tables_that_cannot_be_streamed_are_named(
    tmp_path: Path, columns: dict[str, list], target: str, message: str
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    typed = {name: pa.array(v, None if v else pa.float64()) for name, v in columns.items()}
    parquet.write_table(pa.table(typed), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=message):
        list(stream_data(tmp_path / "d.parquet", target).pieces())


def test_arrays_that_cannot_be_streamed_are_named(tmp_path: Path) -> None:
    good, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(good, np.ones((10, 3)))
    np.save(y, np.ones(10))

    def refused(x: Path, target: Path, message: str) -> None:
        with pytest.raises(DataError, match=message):
            stream_data(x, str(target))

    refused(good, tmp_path / "none.npy", "no such file")
    refused(good, Path("y"), "the targets must be another one")
    refused(tmp_path / "d.csv", y, "only .npy and .parquet")
    np.save(tmp_path / "short.npy", np.ones(9))
    refused(good, tmp_path / "short.npy", "10 rows")
    np.save(tmp_path / "f.npy", np.asfortranarray(np.ones((10, 3))))
    refused(tmp_path / "f.npy", y, "column by column")
    np.save(tmp_path / "o.npy", np.array([{}] * 10, dtype=object), allow_pickle=True)
    refused(tmp_path / "o.npy", y, "not a readable .npy")
    (tmp_path / "cut.npy").write_bytes(good.read_bytes()[:-8])
    refused(tmp_path / "cut.npy", y, "not a readable .npy")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing else")
    refused(tmp_path / "cut.parquet", y, "not a readable .parquet")


def test_survey_of_pieces_says_what_that_of_the_whole_says() -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(500, 2)) * 1e-3 + 1e3
    x = np.concatenate([half, -half, np.ones((500, 1))], axis=1)
    y = rng.integers(0, 3, 500).astype(float)
    survey = Survey()
    for rows in np.array_split(np.arange(500), 7):
        survey.add(x[rows], y[rows])
    assert survey.notes() == examine(x, y)
    assert len(survey.notes()) == 4
    assert np.allclose(survey.x_moments.mean, x.mean(0), rtol=1e-12)
    assert np.allclose(survey.x_moments.spread[:4], x.std(0)[:4], rtol=1e-6)
    assert np.isclose(survey.x_moments.size, np.sqrt(np.square(x).mean()), rtol=1e-12)


def test_survey_says_where_values_are_missing() -> None:
    x = np.ones((100, 2))
    x[63, 1] = np.nan
    survey = Survey()
    for piece in np.split(x, 4):
        survey.add(piece, piece[:, 0])
    assert survey.notes(["px", "py"]) == examine(x, x[:, 0], ["px", "py"])
    assert 'column 1 ("py"); first row 63' in survey.notes(["px", "py"])[0].text


# -- estimators ------------------------------------------------------------------------------------

FAST = {"hidden": (32, 32), "epochs": 5, "lr": 5e-3, "random_state": 0, "device": "cpu"}


def test_regressor_learns_the_same_from_a_file_as_from_arrays(tmp_path: Path) -> None:
    x, y = radial(3000)
    save_parquet(tmp_path / "d.parquet", {"a": x[:, 0], "b": x[:, 1], "y": y})
    streamed = SymmetryRegressor(**FAST).fit(stream_data(tmp_path / "d.parquet"))
    in_memory = SymmetryRegressor(**FAST).fit(x, y)
    for model in (streamed, in_memory):
        rotation = model.generators_[0]
        assert abs(rotation[0, 1] - rotation[1, 0]) / np.linalg.norm(rotation) / 2**0.5 > 0.99
    assert np.isclose(streamed.predictor_.x_scale, in_memory.predictor_.x_scale, rtol=1e-5)
    assert torch.allclose(streamed.predictor_.y_shift, in_memory.predictor_.y_shift, rtol=1e-5)
    assert torch.allclose(streamed.predictor_.y_scale, in_memory.predictor_.y_scale, rtol=1e-5)
    assert streamed.n_samples_ == 3000
    assert "600 held-out samples drawn at random" in streamed.findings().numbers["data"]
    assert streamed.score(x, y) > 0.98


def test_held_out_samples_are_not_trained_on() -> None:
    x, y = ring(500)
    seen: list[Tensor] = []

    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                seen.append(x[: len(x) // 3])
            return self.linear(x)

    model = SymmetryRegressor(Watching(), epochs=1, n_views=2, random_state=0, device="cpu")
    model.fit(Pieces(x, y))
    trained = {tuple(row) for row in torch.cat(seen).tolist()}
    scaled = {tuple(row) for row in (x / model.predictor_.x_scale).tolist()}
    assert len(scaled - trained) == 100
    assert trained < scaled


def test_classifier_learns_from_a_shuffling_loader() -> None:
    x, radius = ring(1500)
    loader = DataLoader(
        TensorDataset(x, torch.where(radius[:, 0] > 1, 7, 3)), batch_size=100, shuffle=True
    )
    model = SymmetryClassifier(**FAST).fit(loader)
    assert model.classes_.tolist() == [3, 7]
    assert model.n_samples_ == 1500
    assert float((model.predict(x.numpy()) == np.where(radius[:, 0] > 1, 7, 3)).mean()) > 0.9


def test_streams_that_cannot_be_learned_from_are_named() -> None:
    x, y = ring(100)
    regressor = SymmetryRegressor(**FAST)
    with pytest.raises(ValueError, match="y must be left out"):
        regressor.fit(Pieces(x, y), y.numpy())
    with pytest.raises(ValueError, match="non-finite"):
        regressor.fit(Pieces(x.clone().index_fill_(0, torch.tensor([70]), torch.nan), y))
    with pytest.raises(ValueError, match="there are 3 samples: at least 4 are needed"):
        regressor.fit(Pieces(x[:3], y[:3]))
    with pytest.raises(ValueError, match="must be whole numbers"):
        SymmetryClassifier(**FAST).fit(Pieces(x, y[:, 0]))


def test_copies_at_the_edge_of_what_is_kept_are_the_same_samples_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty are kept, which ends in the middle of the three copies of a sample."""
    monkeypatch.setattr("lieaugmenter.estimators.task._MOST_HELD_OUT", 20)
    x, y = (part.repeat_interleave(3, 0) for part in ring(50))
    for seed in range(3):
        settings: dict[str, Any] = FAST | {"epochs": 1, "random_state": seed}
        model = SymmetryRegressor(**settings).fit(Pieces(x, y))
        assert "20 held-out samples" in model.findings().numbers["data"]


def test_streams_that_give_other_samples_when_read_again_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether what is held out ends before the edge of what is kept, or at it."""

    class Noisy(Pieces):
        def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
            for x, y in super().pieces(rng):
                yield x + 0.01 * torch.randn_like(x), y

    class Ends(Pieces):
        begun = False

        def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
            found = list(super().pieces(rng))
            yield from found[:1] if self.begun else found
            self.begun = True

    x, y = (part.repeat_interleave(3, 0) for part in ring(50))
    for most in (1000, 20):
        monkeypatch.setattr("lieaugmenter.estimators.task._MOST_HELD_OUT", most)
        for stream in (Noisy(x, y), Ends(x, y)):
            torch.manual_seed(0)
            with pytest.raises(ValueError, match="has to give the same samples each time"):
                SymmetryRegressor(**FAST).fit(stream)


def test_resumed_stream_must_be_the_same(tmp_path: Path) -> None:
    x, y = ring(300)
    settings = FAST | {"epochs": 1, "run_directory": tmp_path / "run"}
    first = SymmetryRegressor(**settings).fit(Pieces(x, y))
    again = SymmetryRegressor(**settings).fit(Pieces(x, y, rows=70), resume=True)
    assert np.array_equal(first.generators_, again.generators_)
    with pytest.raises(RunError, match="was fitted on data"):
        SymmetryRegressor(**settings).fit(Pieces(x + 1e-3, y), resume=True)


class Stops(nn.Module):
    """A network whose training is interrupted at one of its calls."""

    calls = 0
    last: int | None = None

    def __init__(self, in_shape: tuple[int, ...], out_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        Stops.calls += 1
        if Stops.calls == Stops.last:
            signal.raise_signal(signal.SIGINT)
        return self.layers(x)


def test_teams_on_halves_of_a_stream_resume_to_the_bit(tmp_path: Path) -> None:
    settings = FAST | {"network": Stops, "n_generators": "auto", "epochs": 2, "batch_size": 32}
    stream = Pieces(*ring(300))

    def spectrum(name: str, *, last: int | None = None, resume: bool = False) -> list[float]:
        Stops.calls, Stops.last = 0, last
        model = SymmetryRegressor(**settings, run_directory=tmp_path / name)
        model.fit(stream, resume=resume)
        assert model.dimensions_ is not None
        return [row.defect for row in model.dimensions_.rows]

    whole, calls, steps = spectrum("whole"), Stops.calls, 8 * 4
    with pytest.raises(KeyboardInterrupt):
        spectrum("stopped", last=steps + 10)
    teams = {path.name for path in (tmp_path / "stopped" / "teams").iterdir()}
    assert teams == {"plain-1-1", "plain-2-1"}
    assert spectrum("stopped", resume=True) == whole
    # The first team was not trained again.
    assert Stops.calls <= calls - steps


def test_polarization_reads_batches_once_and_gives_the_same_spectrum() -> None:
    x = torch.randn(300, 3, dtype=torch.float64)

    def length(x: Tensor) -> Tensor:
        return x.norm(dim=-1, keepdim=True)

    options = {"action": VectorAction(3), "output": InvariantAction()}
    whole = polarize(length, x, **options)
    streamed = polarize(length, iter(x.split(70)), **options)
    assert torch.allclose(whole.spectrum, streamed.spectrum, atol=1e-12)
    with pytest.raises(ValueError, match="no samples"):
        polarize(length, iter([]), **options)


# -- the command line ------------------------------------------------------------------------------


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict, str]:
    from lieaugmenter.cli import main

    with pytest.raises(SystemExit) as done:
        main([*words, "--json"])
    out, err = capsys.readouterr()
    return done.value.code, json.loads(out) if out else {}, err  # pyright: ignore


def test_discover_and_resume_read_a_table_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = radial(1000)
    save_parquet(Path("d.parquet"), {"a": x[:, 0], "b": x[:, 1], "y": y})
    words = ["discover", "d.parquet", "--stream", "--generators", "1", "--epochs", "1"]
    code, found, _ = call(capsys, *words, "--views", "2")
    assert code == 0
    assert found["numbers"]["data"].startswith("read piece by piece; judged on 200 held-out")
    assert "--stream" in Path("runs/d/report.html").read_text()
    Path("runs/d/verdict.json").unlink()
    code, again, _ = call(capsys, "resume", "runs/d")
    assert code == 0
    assert again["generators"] == found["generators"]


def test_discover_takes_two_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = radial(400)
    np.save("x.npy", x)
    np.save("y.npy", np.where(y > 3, "out", "in"))
    words = ["discover", "x.npy", "--target", "y.npy", "--generators", "1", "--epochs", "1"]
    code, found, _ = call(capsys, *words)
    assert code == 0
    assert found["numbers"]["task"] == "2 classes"
    code, _, err = call(capsys, "discover", "x.npy")
    assert code == 2
    assert "the targets must be another one: --target y.npy" in err
    x[3] = np.nan
    np.save("x.npy", x)
    code, _, err = call(capsys, *words)
    assert code == 2
    assert "X has 2 non-finite values" in err
    assert not Path("runs/x-2").exists()


def test_doctor_says_the_same_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x, _ = radial(300)
    save_parquet(Path("d.parquet"), {"a": x[:, 0], "b": x[:, 1], "c": -x[:, 0], "y": x[:, 1] > 0})
    (_, streamed, _), (_, whole, _) = (
        call(capsys, "doctor", "d.parquet", *how) for how in (["--stream"], [])
    )
    assert [note["text"] for note in whole["notes"]]
    for key in ("notes", "task", "actions"):
        assert streamed[key] == whole[key]
    assert streamed["X"]["shape"] == whole["X"]["shape"] == [300, 3]


def test_memory_stays_when_there_are_ten_times_as_many_samples(tmp_path: Path) -> None:
    """A small part of benchmarks/memory.py: 77 MB beside 8, which read whole would show (1.22)."""
    script = Path(__file__).parent.parent / "benchmarks" / "memory.py"
    out = tmp_path / "memory.json"
    words = ["--samples", "60000", "--ways", "estimator, .npy", "--out", str(out)]
    # Memory is given back as soon as it is free: what the allocator keeps varies by 50 MB.
    at_once = {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, str(script), *words],
        env=os.environ | at_once,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["ways"]["estimator, .npy"]["ratio"] <= 1.05
