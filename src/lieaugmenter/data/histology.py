"""Images in class folders, and the tissue tiles of colorectal cancer that come that way.

Nothing is extracted to disk: tiles are read from a folder, a .zip or a .tar, and decoded one by one
into an array whose size is known, and limited, before. Pillow has its door here.
"""

from __future__ import annotations

import io
import math
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lieaugmenter.data.files import (
    LARGEST_BYTES,
    MOST_MEMBERS,
    DataError,
    check_archive,
    read_arrays,
)
from lieaugmenter.data.images import AXES, rotation
from lieaugmenter.data.store import FOLDER_VARIABLE, local_path
from lieaugmenter.data.task import Task
from lieaugmenter.runs import in_short

COLORECTAL_CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff")
# By their content, whatever their suffix: Pillow has more decoders than anyone has looked at, and
# one of them, for PostScript, starts a program.
_FORMATS = ("BMP", "JPEG", "PNG", "TIFF")
# Of one tile: in its file, and unpacked.
_LARGEST_FILE = 64 * 2**20
_LARGEST_PIXELS = 2**24
# Where a camera notes how it was held, and what turns the picture upright again.
_ORIENTATION_TAG = 0x0112
_ORIENTATIONS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_VALIDATION_SHARE = 0.1
_COLORECTAL_SETS = {"train": "NCT-CRC-HE-100K", "test": "CRC-VAL-HE-7K"}
_HOW_TO_GET = (
    "Download NCT-CRC-HE-100K.zip and CRC-VAL-HE-7K.zip from https://zenodo.org/records/1214456 "
    "into one folder, as they are or unpacked, and name it, or put them into crc/ of the folder "
    f"that {FOLDER_VARIABLE} names"
)
_STAND_IN = "crc/colorectal5_64px_all.npz"
_STAND_IN_ARRAYS = ("jpeg", "offset", "label", "is_test", "mirror_duplicate", "class_names")


@dataclass(frozen=True)
class ImageSet:
    """Images with their classes.

    Attributes
    ----------
    images
        (n, channels, height, width), bytes.
    labels
        (n,) int64, positions in `class_names`.
    class_names
        Names of the class folders, in alphabetical order.
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class _Tile:
    """An image file: where it lies below the root, how large it is, how to get its bytes."""

    path: PurePosixPath
    size: int
    read: Callable[[], bytes]


def read_class_folders(
    source: Path,
    *,
    size: int | None = None,
    n: int | None = None,
    seed: int = 0,
    classes: Sequence[str] | None = None,
) -> ImageSet:
    """Read a folder, .zip or .tar of class folders, one image file a sample.

    Class folders may lie in one common folder, as in ``NCT-CRC-HE-100K/ADI/….tif``. Files that are
    no images by their suffix, and hidden ones, are passed over.

    Parameters
    ----------
    source
        The folder or archive.
    size
        Side in pixels to resize to; without it all images must be of one size.
    n
        Only so many images, drawn at random.
    seed
        Of that draw.
    classes
        The only class names that may occur, and their order; any unless given.

    Raises
    ------
    DataError
        With the file that is to blame.
    """
    if size is not None and not 1 <= size <= math.isqrt(_LARGEST_PIXELS):
        raise DataError(
            f"{source}: size={size}: give from 1 to {math.isqrt(_LARGEST_PIXELS)} pixels a side"
        )
    with _opened(source) as tiles:
        names, labels = _classes_of(source, tiles, classes)
        chosen = np.arange(len(tiles))
        if n is not None:
            _check_count("n", n, len(tiles))
            chosen = np.sort(np.random.default_rng(seed).permutation(len(tiles))[:n])
        images = _decode_all([tiles[i] for i in chosen], source, size)
    return ImageSet(images, labels[chosen], names)


def colorectal(
    source: Path | None = None,
    *,
    size: int | None = None,
    n_train: int | None = None,
    n_test: int | None = None,
    seed: int = 0,
) -> Task:
    """Tissue of nine kinds: NCT-CRC-HE-100K to train on, CRC-VAL-HE-7K to test on.

    Nothing is rotated: tissue has no upright position. A tenth of the training tiles is set aside
    for validation. x is (n, 3, size, size) in [0, 1], y int64 (n,).

    Parameters
    ----------
    source
        Folder that holds both sets as published, each as a folder, .zip or .tar; without one,
        ``crc/`` of the folder that ``LIEAUGMENTER_DATA`` names.
    size
        Side in pixels to resize to, from 224. All tiles at 224 would need 60 GB, which is refused.
    n_train, n_test
        Numbers of tiles, drawn at random; all unless given. `n_train` includes those for
        validation.
    seed
        Of the draws.

    Raises
    ------
    DataError
        If a set is missing, damaged or not as published.
    """
    folder = source if source is not None else local_path("crc")
    if folder is None:
        raise DataError(f"NCT-CRC-HE-100K is not on this machine. {_HOW_TO_GET}")
    found = {}
    for part, count in (("train", n_train), ("test", n_test)):
        path = _published(folder, _COLORECTAL_SETS[part])
        found[part] = read_class_folders(
            path, size=size, n=count, seed=seed, classes=COLORECTAL_CLASSES
        )
    train, test = found["train"], found["test"]
    if train.images.shape[1:] != test.images.shape[1:]:
        raise DataError(
            f"{folder}: tiles for training have shape {train.images.shape[1:]}, those for testing "
            f"{test.images.shape[1:]}"
        )
    order = np.random.default_rng(seed).permutation(len(train.images))
    held = max(1, round(_VALIDATION_SHARE * len(order)))
    return _tissue_task(
        "colorectal",
        (train.images[order[held:]], train.labels[order[held:]]),
        (train.images[order[:held]], train.labels[order[:held]]),
        (test.images, test.labels),
    )


def stand_in(
    source: Path | None = None,
    *,
    n_train: int | None = None,
    n_validation: int | None = None,
    n_test: int | None = None,
    seed: int = 0,
) -> Task:
    """Tissue of five kinds in 64 × 64 pixels, where NCT-CRC-HE-100K is not to be had.

    As in the paper's experiment nothing is rotated: tissue has no upright position. The training
    tiles that the file marks as mirror images of others are left out, so that no tile can be in
    training and, mirrored, in validation; none of them mirrors a test tile. A tenth of the rest is
    for validation. x is (n, 3, 64, 64) in [0, 1], y int64 (n,). Accuracies are not comparable with
    those on NCT-CRC-HE-100K.

    Parameters
    ----------
    source
        An .npz of JPEG files: their bytes one after another (`jpeg`), where each begins
        (`offset`, one more than there are), `label`, `is_test`, `mirror_duplicate`,
        `class_names`. Without it, ``crc/colorectal5_64px_all.npz`` of the folder that
        ``LIEAUGMENTER_DATA`` names.
    n_train, n_validation, n_test
        Numbers of tiles; all unless given. Smaller sets are the first of larger ones.
    seed
        Of the order and of what is for validation.

    Raises
    ------
    DataError
        If the file is missing or damaged.
    """
    path = source if source is not None else local_path(_STAND_IN)
    if path is None or not path.is_file():
        raise DataError(
            f"{path or _STAND_IN}: no such file. Give the .npz, or set {FOLDER_VARIABLE} to the "
            f"folder that has it as {_STAND_IN}"
        )
    arrays = read_arrays(path, _STAND_IN_ARRAYS)
    tiles = _packed_tiles(path, arrays)
    is_test, mirrored = arrays["is_test"].astype(bool), arrays["mirror_duplicate"].astype(bool)
    labels = arrays["label"].astype(np.int64)
    train_stream, test_stream = np.random.default_rng(seed).spawn(2)
    usable = train_stream.permutation(np.flatnonzero(~is_test & ~mirrored))
    held = max(1, round(_VALIDATION_SHARE * len(usable)))
    if len(usable) < 2 or not is_test.any():
        raise DataError(f"{path}: too few tiles to train, validate and test")
    validation, train = usable[:held], usable[held:]
    test = test_stream.permutation(np.flatnonzero(is_test))
    for name, asked, there in (
        ("n_train", n_train, train),
        ("n_validation", n_validation, validation),
        ("n_test", n_test, test),
    ):
        if asked is not None:
            _check_count(name, asked, len(there))

    def part(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _decode_all([tiles[i] for i in chosen], path, None), labels[chosen]

    return _tissue_task(
        "colorectal-stand-in",
        part(train[:n_train]),
        part(validation[:n_validation]),
        part(test[:n_test]),
    )


def _tissue_task(
    name: str,
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
) -> Task:
    def tensors(part: tuple[np.ndarray, np.ndarray]) -> tuple[Tensor, Tensor]:
        images, labels = part
        return torch.from_numpy(images).float().div_(255), torch.from_numpy(labels)

    x_train, y_train = tensors(train)
    x_validation, y_validation = tensors(validation)
    x_test, y_test = tensors(test)
    return Task(
        name=name,
        x_train=x_train,
        y_train=y_train,
        x_validation=x_validation,
        y_validation=y_validation,
        x_test=x_test,
        y_test=y_test,
        generator=rotation(),
        output="invariant",
        feature_names=AXES,
    )


def _published(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.zip", folder / f"{name}.tar"):
        if path.exists():
            return path
    raise DataError(f"{folder}: no {name}, {name}.zip or {name}.tar. {_HOW_TO_GET}")


def _packed_tiles(path: Path, arrays: dict[str, np.ndarray]) -> list[_Tile]:
    offset, count = arrays["offset"], len(arrays["label"])
    content = arrays["jpeg"].tobytes()
    lengths = {name: len(arrays[name]) for name in ("is_test", "mirror_duplicate")}
    if offset.shape != (count + 1,) or set(lengths.values()) != {count}:
        raise DataError(f"{path}: damaged: offset, label and the marks are not of one length")
    if offset[0] < 0 or (np.diff(offset) <= 0).any() or offset[-1] > len(content):
        raise DataError(f"{path}: damaged: offset does not cut jpeg into files")

    def reader(i: int) -> Callable[[], bytes]:
        return lambda: content[offset[i] : offset[i + 1]]

    sizes = np.diff(offset).tolist()
    return [_Tile(PurePosixPath(f"tile {i}"), sizes[i], reader(i)) for i in range(count)]


# -- where tiles lie -------------------------------------------------------------------------------


@contextmanager
def _opened(source: Path) -> Iterator[list[_Tile]]:
    """The image files of a folder or archive, in the order of their names."""
    if source.is_dir():
        yield _sorted(_folder_tiles(source))
        return
    if not source.is_file():
        raise DataError(f"{source}: no such folder or file")
    try:
        if source.suffix.lower() == ".zip":
            with zipfile.ZipFile(source) as archive:
                check_archive(source, archive)
                yield _sorted(_zip_tiles(archive))
        else:
            with tarfile.open(source, "r:", tarinfo=_PlainTarInfo) as archive:
                yield _sorted(_tar_tiles(source, archive))
    except DataError:
        raise
    except Exception as error:
        # Damaged archives raise anything, from struct.error to UnicodeDecodeError.
        raise DataError(f"{source}: not a readable archive ({in_short(error)})") from None


class _PlainTarInfo(tarfile.TarInfo):
    """Refuses headers over which older Pythons think for ever.

    CVE-2024-6232: the time for an extended header grows with the square of its length.
    CVE-2025-8194: a negative size leads back to where it was read. The entry point that is
    overridden is the one that `tarfile` has for it.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.size < 0 or (self.type in _EXTENDED and self.size > _LARGEST_HEADER):
            raise DataError(
                f"{archive.name}: not a readable archive (a header of {self.size} bytes)"
            )
        return super()._proc_member(archive)  # pyright: ignore[reportAttributeAccessIssue]


_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LARGEST_HEADER = 2**14


def _sorted(tiles: Iterator[_Tile]) -> list[_Tile]:
    return sorted(filter(_is_image, tiles), key=lambda tile: tile.path.parts)


def _is_image(tile: _Tile) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in tile.path.parts)
    return tile.path.suffix.lower() in SUFFIXES and not hidden


def _folder_tiles(folder: Path) -> Iterator[_Tile]:
    for path in folder.rglob("*"):
        if path.is_file():
            below = PurePosixPath(path.relative_to(folder).as_posix())
            yield _Tile(below, path.stat().st_size, path.read_bytes)


def _zip_tiles(archive: zipfile.ZipFile) -> Iterator[_Tile]:
    def reader(entry: zipfile.ZipInfo) -> Callable[[], bytes]:
        return lambda: archive.read(entry)

    for entry in archive.infolist():
        if not entry.is_dir():
            yield _Tile(PurePosixPath(entry.filename), entry.file_size, reader(entry))


def _tar_tiles(source: Path, archive: tarfile.TarFile) -> Iterator[_Tile]:
    def reader(entry: tarfile.TarInfo) -> Callable[[], bytes]:
        def read() -> bytes:
            content = archive.extractfile(entry)
            return b"" if content is None else content.read()

        return read

    end = -1
    for count, entry in enumerate(archive):
        # An extended header, too, can give a negative size.
        if entry.offset <= end or entry.size < 0 or count >= MOST_MEMBERS:
            raise DataError(
                f"{source}: not a readable archive (its members do not follow one another)"
            )
        end = entry.offset
        if entry.isreg():
            yield _Tile(PurePosixPath(entry.name), entry.size, reader(entry))


def _classes_of(
    source: Path, tiles: list[_Tile], allowed: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the classes, and the number of each tile's."""
    if not tiles:
        raise DataError(
            f"{source}: no class folders with images ({', '.join(SUFFIXES)}); expected "
            f"{source.name}/CLASS/image.png"
        )
    above = tiles[0].path.parent.parent
    for tile in tiles:
        if len(tile.path.parts) < 2:
            raise DataError(
                f"{source}: {tile.path} lies in no class folder; expected CLASS/{tile.path}"
            )
        if tile.path.parent.parent != above:
            raise DataError(
                f"{source}: class folders must lie side by side; {tiles[0].path} and {tile.path} "
                f"do not. Name the folder whose folders are the classes"
            )
    found = sorted({tile.path.parent.name for tile in tiles})
    names = tuple(found if allowed is None else allowed)
    for tile in tiles:
        if tile.path.parent.name not in names:
            raise DataError(f"{source}: {tile.path} is in no class of {', '.join(names)}")
    if len(found) < 2:
        raise DataError(f"{source}: one class only ({found[0]}); at least two are needed")
    return names, np.array([names.index(tile.path.parent.name) for tile in tiles], dtype=np.int64)


# -- pixels ----------------------------------------------------------------------------------------


def _decode_all(tiles: Sequence[_Tile], source: Path, size: int | None) -> np.ndarray:
    """(n, channels, height, width) bytes."""
    pillow = _pillow()
    with warnings.catch_warnings():
        # What Pillow only warns of is refused, with the file's name.
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        first = _decode(pillow, tiles[0], source, size)
        shape = (len(tiles), *first.shape)
        _check_memory(source, shape)
        images = np.empty(shape, dtype=np.uint8)
        for i, tile in enumerate(tiles):
            pixels = _decode(pillow, tile, source, size)
            if pixels.shape != first.shape:
                raise DataError(_difference(source, tiles[0], first.shape, tile, pixels.shape))
            images[i] = pixels
    return images


def _check_memory(source: Path, shape: tuple[int, ...]) -> None:
    # As float32, which is how they are learned from.
    needed = 4 * int(np.prod(shape, dtype=np.int64))
    if needed > LARGEST_BYTES:
        raise DataError(
            f"{source}: {shape[0]} images of {shape[2]} × {shape[3]} pixels need "
            f"{needed / 2**30:.0f} GiB; at most {LARGEST_BYTES // 2**30} GiB are read. Give a "
            f"smaller size, or take fewer"
        )


def _difference(
    source: Path, first: _Tile, shape: tuple[int, ...], other: _Tile, other_shape: tuple[int, ...]
) -> str:
    if shape[0] != other_shape[0]:
        return (
            f"{source}: {other.path} has {other_shape[0]} channels, {first.path} has {shape[0]}; "
            f"save all of them in grey or all in colour"
        )
    here, there = (f"{s[1]} × {s[2]}" for s in (other_shape, shape))
    return (
        f"{source}: {other.path} has {here} pixels, {first.path} has {there}; give a size to "
        f"resize all of them to (size=, on the command line --size)"
    )


def _decode(pillow: Any, tile: _Tile, source: Path, size: int | None) -> np.ndarray:
    """One image, (channels, height, width) bytes."""
    where = f"{source}: {tile.path}"
    if tile.size > _LARGEST_FILE:
        raise DataError(
            f"{where} has {tile.size / 2**20:.0f} MiB; at most {_LARGEST_FILE // 2**20} are read"
        )
    try:
        # Opening reads the header alone.
        image = pillow.open(io.BytesIO(tile.read()), formats=_FORMATS)
        width, height = image.size
        if width * height > _LARGEST_PIXELS:
            raise DataError(_bomb(where, f"{height} × {width} pixels"))
        return _pixels(pillow, image, where, size)
    except DataError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise DataError(_bomb(where, str(error))) from None
    except pillow.UnidentifiedImageError:
        raise DataError(f"{where} is not a readable image (of no known kind)") from None
    except Exception as error:
        # Decoders of damaged files raise anything, from struct.error to AttributeError.
        raise DataError(f"{where} is not a readable image ({in_short(error)})") from None


def _bomb(where: str, size: str) -> str:
    return f"{where} is too large to unpack ({size}); at most {_LARGEST_PIXELS} pixels are read"


def _pixels(pillow: Any, image: Any, where: str, size: int | None) -> np.ndarray:
    modes = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGB"}
    if image.mode not in modes:
        raise DataError(
            f"{where} has pixels of mode {image.mode}; grey or RGB of 8 bits are needed"
        )
    if image.mode == "RGBA" and image.getextrema()[3] != (255, 255):
        raise DataError(f"{where} is partly transparent; put it on a background first")
    # Before the mode changes: what a camera says about "up" would be lost.
    upright = _ORIENTATIONS.get(image.getexif().get(_ORIENTATION_TAG, 1))
    image = image.convert(modes[image.mode])
    if upright is not None:
        image = image.transpose(pillow.Transpose[upright])
    if size is not None:
        image = image.resize((size, size), pillow.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading images needs: pip install 'lieaugmenter[images]'") from None
    return Image


def _check_count(name: str, asked: int, most: int) -> None:
    if not 1 <= asked <= most:
        raise DataError(f"{name}={asked}: from 1 to {most} images are there")
