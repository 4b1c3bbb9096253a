"""Rotated digits: read, split and turned as the paper says."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lieaugmenter.data.files import DataError
from lieaugmenter.data.images import digits, read_idx, rotate, rotated_mnist, rotation
from lieaugmenter.data.task import Task

needs_mnist = pytest.mark.skipif(
    not Path(os.environ.get("LIEAUGMENTER_DATA", ""), "mnist").is_dir(),
    reason="set LIEAUGMENTER_DATA to a folder with MNIST's four .gz files in mnist/",
)


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like MNIST's: images that say in two pixels which one they are."""
    folder = tmp_path_factory.mktemp("mnist")
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 12:16, 12:16] = 255
        numbers = np.arange(count)
        images[:, 14, 20] = numbers % 251
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        packed = gzip.compress(idx(numbers % 10), compresslevel=1)
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(packed)
    return folder


def test_idx_is_read_packed_or_not(tmp_path: Path) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(array)))
    assert np.array_equal(read_idx(tmp_path / "plain"), array)
    assert np.array_equal(read_idx(tmp_path / "packed.gz"), array)


WHOLE = idx(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a readable IDX file"),
        (b"", "not an IDX file"),
        (b"PNG and more", "not an IDX file"),
        (b"\0\0\x0d\x01" + WHOLE[4:], "not an IDX file of unsigned bytes"),
        (WHOLE[:7], "ends within its header"),
        (WHOLE[:-1], r"holds 5 bytes, its header says 2 × 3"),
        (WHOLE + b"\0", r"holds 7 bytes"),
        (gzip.compress(WHOLE, mtime=0)[:-9], "not a readable IDX file"),
        (gzip.compress(WHOLE, mtime=0)[:12] + bytes(20), "not a readable IDX file"),
    ],
)
def test_each_damaged_idx_gets_its_message(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(start=st.sampled_from([b"", b"\0\0\x08", b"\x1f\x8b\x08"]), content=st.binary(max_size=60))
def test_arbitrary_bytes_never_give_anything_but_a_data_error(
    tmp_path: Path, start: bytes, content: bytes
) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(start + content)
    with contextlib.suppress(DataError):
        assert read_idx(path).dtype == np.uint8


def test_quarter_turns_are_rot90_and_none_changes_nothing() -> None:
    images = torch.rand(4, 1, 9, 9)
    turned = rotate(images, torch.arange(4) * math.pi / 2)
    for quarters in range(4):
        expected = torch.rot90(images[quarters], quarters, (-2, -1))
        assert torch.allclose(turned[quarters], expected, atol=1e-5)


def test_pixels_stay_between_0_and_1_and_enter_as_0() -> None:
    turned = rotate(torch.ones(50, 1, 8, 8), torch.linspace(0, 6, 50))
    assert turned.min() == 0
    assert turned.max() == 1


def test_parts_are_the_papers(source: Path) -> None:
    task = rotated_mnist(source, n_train=30, n_validation=20, n_test=10)
    assert task.x_train.shape == (30, 1, 28, 28)
    assert task.x_train.dtype == torch.float32
    assert task.y_train.dtype == torch.int64
    assert task.y_train.tolist() == [i % 10 for i in range(30)]
    # 54,000 and the following.
    assert task.y_validation is not None
    assert task.y_validation.tolist() == [i % 10 for i in range(20)]
    assert task.y_test.tolist() == list(range(10))
    assert task.output == "invariant"
    assert task.generator is not None
    assert task.generator.tolist() == [[[0, -1, 0], [1, 0, 0], [0, 0, 0]]]


def angles_of(x: torch.Tensor) -> torch.Tensor:
    """Angle of the bright spot right of the middle, in degrees."""
    ring = x[:, 0].clone()
    ring[:, 10:18, 10:18] = 0
    row, column = (ring.flatten(1).argmax(1) // 28, ring.flatten(1).argmax(1) % 28)
    return torch.rad2deg(torch.atan2(13.5 - row, column - 13.5))


def bright(task: Task, part: str) -> torch.Tensor:
    x: torch.Tensor = getattr(task, f"x_{part}")
    ring = x[:, 0].clone()
    ring[:, 10:18, 10:18] = 0
    return x[ring.flatten(1).amax(1) > 0.2]


def test_angles_fill_the_circle(source: Path) -> None:
    task = rotated_mnist(source, n_train=900, n_validation=300, n_test=300)
    for part in ("train", "validation", "test"):
        angles = angles_of(bright(task, part))
        assert (torch.histc(angles, 4, -180, 180) > 20).all()


def test_shifted_angles_of_testing_are_those_that_training_lacks(source: Path) -> None:
    task = rotated_mnist(source, shifted=True, n_train=900, n_validation=300, n_test=900)
    for part in ("train", "validation"):
        assert angles_of(bright(task, part)).abs().max() < 95
    assert angles_of(bright(task, "test")).abs().min() > 85


def test_smaller_sets_are_the_first_of_larger_ones(source: Path) -> None:
    small = rotated_mnist(source, n_train=20, n_validation=5, n_test=7)
    large = rotated_mnist(source, n_train=200, n_validation=50, n_test=70)
    assert torch.allclose(small.x_train, large.x_train[:20], atol=1e-4)
    assert torch.allclose(small.x_test, large.x_test[:7], atol=1e-4)
    other = rotated_mnist(source, n_train=20, n_validation=5, n_test=7, seed=1)
    assert not torch.allclose(small.x_train, other.x_train, atol=1e-2)


@pytest.mark.parametrize(
    ("counts", "message"),
    [({"n_train": 54_001}, "from 1 to 54000"), ({"n_test": 0}, "n_test=0: from 1 to 10000")],
)
def test_more_images_than_there_are_is_refused(counts: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rotated_mnist(Path("nowhere"), **counts)


def test_folder_without_the_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file train-images-idx3-ubyte or"):
        rotated_mnist(tmp_path)


def test_file_of_another_shape_is_named(tmp_path: Path, source: Path) -> None:
    for path in source.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((5, 28, 28))))
    with pytest.raises(DataError, match=r"t10k-images.*has shape \(5, 28, 28\), MNIST's has"):
        rotated_mnist(tmp_path, n_train=1, n_validation=1, n_test=1)


@needs_mnist
def test_mnist_itself_is_read() -> None:
    task = rotated_mnist(n_train=2000, n_validation=100, n_test=100)
    # The first labels of MNIST's training and test sets.
    assert task.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert task.y_test[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    # Its mean, 0.1307, survives a rotation.
    assert abs(float(task.x_train.mean()) - 0.1307) < 0.003


def test_digits_are_split_without_overlap_and_turned_once() -> None:
    task = digits(1000, 300, seed=3)
    assert task.x_validation is not None
    assert [len(x) for x in (task.x_train, task.x_validation, task.x_test)] == [1000, 300, 497]
    assert task.x_train.shape[1:] == (1, 8, 8)
    assert task.y_train.dtype == torch.int64
    assert task.generator is not None
    assert torch.equal(task.generator, rotation())
    again = digits(1000, 300, seed=3)
    assert torch.equal(task.x_train, again.x_train)
    assert len(torch.unique(torch.cat([task.x_train, task.x_test]).flatten(1), dim=0)) > 1490


@pytest.mark.parametrize("counts", [(0, 10), (10, 0), (1700, 97)])
def test_digits_refuse_counts_that_leave_a_part_empty(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="together less than 1797"):
        digits(*counts)


def test_digits_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"the digits need: pip install 'lieaugmenter\[sklearn\]'"):
        digits()
