"""Images of digits, each rotated once by an angle of its own."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import ImageAction
from lieaugmenter.data.files import DataError
from lieaugmenter.data.store import RemoteFile, fetch
from lieaugmenter.data.task import Task
from lieaugmenter.lie.catalogue import lift, so
from lieaugmenter.lie.elements import Elements

# Of the plane in homogeneous coordinates: what the rows of a generator stand for.
AXES = ("x", "y", "1")
_TRAIN, _VALIDATION = 54_000, 6_000
# Images that are warped at once: the grids of all of them would need gigabytes.
_CHUNK = 2_000
_SIZE = 28
# MNIST's largest file unpacks to a twentieth of it.
_LARGEST_IDX = 2**30
_MOST_AXES = 4
_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_PINNED = {
    "train-images-idx3-ubyte": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        9_912_422,
    ),
    "train-labels-idx1-ubyte": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        28_881,
    ),
    "t10k-images-idx3-ubyte": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        1_648_877,
    ),
    "t10k-labels-idx1-ubyte": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        4_542,
    ),
}

Angles = Callable[[np.random.Generator, int], np.ndarray]


def rotation() -> Float[Tensor, "1 3 3"]:
    """The rotation of the plane in homogeneous coordinates, E_21 - E_12."""
    return lift(so(2))


def rotated_mnist(
    source: Path | None = None,
    *,
    shifted: bool = False,
    n_train: int = _TRAIN,
    n_validation: int = _VALIDATION,
    n_test: int = 10_000,
    seed: int = 0,
) -> Task:
    """MNIST, every image rotated once about its centre, by bilinear interpolation.

    Training images are the first 54,000 of MNIST's 60,000, the other 6,000 are for validation,
    MNIST's test images for testing; smaller sets are the first images of these, rotated as in the
    whole set. x is (n, 1, 28, 28) in [0, 1], y the digits, int64 (n,).

    Parameters
    ----------
    source
        Folder of the four IDX files, packed (.gz) or not. Without one they come from ``mnist/`` in
        the folder that ``LIEAUGMENTER_DATA`` names, or are downloaded.
    shifted
        Angles are uniform in [0°, 360°). Shifted, they are in [-90°, 90°) for training and
        validation, and in the other half of the circle for testing.
    n_train, n_validation, n_test
        Numbers of images.
    seed
        Of the angles.

    Raises
    ------
    DataError
        If the files cannot be had or are damaged.
    """
    for name, asked, most in (
        ("n_train", n_train, _TRAIN),
        ("n_validation", n_validation, _VALIDATION),
        ("n_test", n_test, 10_000),
    ):
        _check_count(name, asked, most)
    images, labels = _mnist_part(source, "train", _TRAIN + _VALIDATION)
    test_images, test_labels = _mnist_part(source, "t10k", 10_000)
    near, far = (_front_half, _back_half) if shifted else (_whole_circle, _whole_circle)
    train, validation = slice(n_train), slice(_TRAIN, _TRAIN + n_validation)
    streams = np.random.default_rng(seed).spawn(3)
    return Task(
        name="rotated-mnist-shifted" if shifted else "rotated-mnist",
        x_train=_rotated(images[train], near, streams[0]),
        y_train=torch.from_numpy(labels[train]),
        x_validation=_rotated(images[validation], near, streams[1]),
        y_validation=torch.from_numpy(labels[validation]),
        x_test=_rotated(test_images[:n_test], far, streams[2]),
        y_test=torch.from_numpy(test_labels[:n_test]),
        generator=rotation(),
        output="invariant",
        feature_names=AXES,
    )


def digits(n_train: int = 1_200, n_validation: int = 200, *, seed: int = 0) -> Task:
    """The 1,797 digits of 8 × 8 pixels that come with scikit-learn, each rotated once.

    Angles are uniform in [0°, 360°). x is (n, 1, 8, 8) in [0, 1], y the digits, int64 (n,). What
    training and validation leave is for testing.

    Parameters
    ----------
    n_train, n_validation
        Numbers of images.
    seed
        Of the order and the angles.

    Examples
    --------
    >>> task = digits(100, 50)
    >>> task.x_train.shape, len(task.x_test)
    (torch.Size([100, 1, 8, 8]), 1647)
    """
    images, labels = _scikit_learn_digits()
    order_stream, angle_stream = np.random.default_rng(seed).spawn(2)
    order = order_stream.permutation(len(images))
    held = n_train + n_validation
    if n_train < 1 or n_validation < 1 or held >= len(images):
        raise ValueError(
            f"n_train={n_train}, n_validation={n_validation}: both at least 1, together less than "
            f"{len(images)}"
        )
    x = _rotated(images[order], _whole_circle, angle_stream)
    y = torch.from_numpy(labels[order])
    return Task(
        name="digits",
        x_train=x[:n_train],
        y_train=y[:n_train],
        x_validation=x[n_train:held],
        y_validation=y[n_train:held],
        x_test=x[held:],
        y_test=y[held:],
        generator=rotation(),
        output="invariant",
        feature_names=AXES,
    )


def rotate(
    images: Float[Tensor, "n channels height width"], angles: Float[Tensor, " n"]
) -> Float[Tensor, "n channels height width"]:
    """Images turned counter-clockwise about their centres, each by its own angle in radians.

    Bilinear; what enters from outside is 0.
    """
    action, basis = ImageAction(), rotation()
    turned = torch.empty_like(images)
    for start in range(0, len(images), _CHUNK):
        part = slice(start, start + _CHUNK)
        elements = Elements(angles[part, None, None], basis)
        turned[part] = action.act(elements, images[part]).squeeze(1)
    # The weights of four neighbours may add up to a rounding more than 1.
    return turned.clamp_(0, 1)


def read_idx(path: Path) -> np.ndarray:
    """The array of unsigned bytes in an IDX file, packed by gzip or not.

    Raises
    ------
    DataError
        For a file that is missing, damaged, cut short, or of another kind.
    """
    try:
        if path.stat().st_size > _LARGEST_IDX:
            raise DataError(f"{path}: has more than {_LARGEST_IDX // 2**20} MiB")
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(_LARGEST_IDX + 1)
        if len(content) > _LARGEST_IDX:
            raise DataError(f"{path}: unpacks to more than {_LARGEST_IDX // 2**20} MiB")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a readable IDX file ({error})") from None
    # Two zeros, the code of unsigned bytes, the number of axes, then their lengths.
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError(f"{path}: not an IDX file of unsigned bytes")
    if content[3] > _MOST_AXES:
        raise DataError(f"{path}: damaged IDX file ({content[3]} axes; MNIST's have 1 or 3)")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path}: damaged IDX file (ends within its header)")
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist())
    if len(content) - start != math.prod(shape) or not all(shape):
        raise DataError(
            f"{path}: damaged IDX file (holds {len(content) - start} bytes, its header says "
            f"{' × '.join(map(str, shape))})"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _mnist_part(source: Path | None, part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels, (count, 28, 28) bytes and (count,) int64."""
    images_path = _mnist_file(source, f"{part}-images-idx3-ubyte")
    labels_path = _mnist_file(source, f"{part}-labels-idx1-ubyte")
    images, labels = read_idx(images_path), read_idx(labels_path)
    for path, array, shape in (
        (images_path, images, (count, _SIZE, _SIZE)),
        (labels_path, labels, (count,)),
    ):
        if array.shape != shape:
            raise DataError(f"{path}: has shape {array.shape}, MNIST's has {shape}")
    if labels.max() > 9:
        raise DataError(f"{labels_path}: holds the label {labels.max()}; MNIST's are 0 to 9")
    return images, labels.astype(np.int64)


def _mnist_file(source: Path | None, name: str) -> Path:
    if source is None:
        digest, size = _PINNED[name]
        packed = f"{name}.gz"
        mirrors = tuple(mirror + packed for mirror in _MIRRORS)
        return fetch(RemoteFile(f"mnist/{packed}", mirrors, digest, size))
    for path in (source / f"{name}.gz", source / name):
        if path.is_file():
            return path
    raise DataError(f"{source}: no file {name} or {name}.gz; a folder of MNIST's four IDX files")


def _rotated(images: np.ndarray, angles: Angles, rng: np.random.Generator) -> Tensor:
    """Bytes or values in [0, 1], (n, h, w), as rotated (n, 1, h, w) in [0, 1]."""
    scale = 255 if images.dtype == np.uint8 else 1
    pixels = torch.from_numpy(np.divide(images, scale, dtype=np.float32)).unsqueeze(1)
    return rotate(pixels, torch.from_numpy(angles(rng, len(images))).float())


def _whole_circle(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0, 2 * math.pi, n)


def _front_half(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-math.pi / 2, math.pi / 2, n)


def _back_half(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(math.pi / 2, 3 * math.pi / 2, n)


def _check_count(name: str, asked: int, most: int) -> None:
    if not 1 <= asked <= most:
        raise ValueError(f"{name}={asked}: from 1 to {most} images are there")


def _scikit_learn_digits() -> tuple[np.ndarray, np.ndarray]:
    """(1797, 8, 8) in [0, 1] and (1797,) int64."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("the digits need: pip install 'lieaugmenter[sklearn]'") from None
    bunch: Any = load_digits()
    return bunch.images / 16, bunch.target.astype(np.int64)
