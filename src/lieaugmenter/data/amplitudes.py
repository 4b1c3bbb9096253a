"""Scattering events whose squared amplitude is invariant under the Lorentz group.

Here are the process q q̄ → Z + gluons, calculated, its published events, read from their file, and
a toy: the invariant mass of two particles.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.data.checkup import non_finite_message
from lieaugmenter.data.feynman import (
    colour_matrix,
    gluon_polarisations,
    massive_polarisations,
    ordered_amplitudes,
)
from lieaugmenter.data.files import (
    DataError,
    check_npy,
    check_unpacked,
    enumerated,
)
from lieaugmenter.data.phase_space import random_lorentz, scatter
from lieaugmenter.data.task import Task
from lieaugmenter.lie.catalogue import so_pq
from lieaugmenter.runs import in_short

FEATURES = ("E", "px", "py", "pz")
# At the mass of the Z; they do not run. In a standardised logarithm they cancel.
ALPHA_STRONG = 0.118
ALPHA = 1 / 132.507
SIN2_WEAK = 0.2222
# Of an up-type quark: the third component of weak isospin when left-handed, and the charge.
_ISOSPIN, _CHARGE = 0.5, 2 / 3
# Spins and colours of quark and antiquark.
_INITIAL_STATES = 2 * 2 * 3 * 3
# Events that are calculated at once: few enough for their currents to stay in the cache.
_CHUNK = 2_000
# Shares of the published rows that are for training and validation; testing lies between them.
_TRAIN, _VALIDATION = 0.4, 0.1
_FEWEST_ROWS = 10
_LARGEST_NUMBER = 1e100
# Of the squared energy, what the square of a massless momentum may be: half precision rounds so.
_OFF_SHELL = 0.02
_NAMES = ("quark", "antiquark", "Z")
_HOW_TO_GET = (
    "The published events are amplitudes.hdf5 of github.com/heidelberg-hepml/lorentz-gatr; "
    "amplitudes() calculates events of the same kind"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class FourMomenta(Task):
    """Momenta of the particles of an event, and the logarithm of something invariant.

    x is (n, particles, 4) in the order of `FEATURES`, in units of `unit`: one number for all of
    them, so that Lorentz transformations stay linear. y is (log a - `log_mean`) / `log_deviation`,
    (n, 1). All three are taken over the whole set. The generators are three boosts and three
    rotations.

    Attributes
    ----------
    kinds
        A number for each particle, equal for particles of one kind.
    unit
        Standard deviation of all components, in the unit of the momenta (GeV).
    log_mean, log_deviation
        Mean and standard deviation of log a.
    """

    generator: Float[Tensor, "6 4 4"]
    kinds: tuple[int, ...]
    unit: float
    log_mean: float
    log_deviation: float


def amplitudes(
    n_train: int = 320_000,
    n_validation: int = 80_000,
    n_test: int = 400_000,
    *,
    gluons: int = 2,
    boost: float | None = None,
    energies: tuple[float, float] = (200.0, 2000.0),
    seed: int = 0,
) -> FourMomenta:
    """Squared amplitudes of q q̄ → Z + gluons at tree level, from events in phase space.

    See `phase_space.scatter` for how events are drawn, `squared_amplitude` for the target. Parts
    are drawn from streams of their own. Their sizes are those that the size of the published file
    and its split suggest.

    Masses are the same in all events, so these say nothing about what moves a particle off its mass
    shell. In the laboratory the beam is along z, and only the turn about it and the boost along it
    lead to other events of the kind; in random frames the whole Lorentz group does.

    Parameters
    ----------
    n_train, n_validation, n_test
        Numbers of events.
    gluons
        Number of gluons, 1 to 4; each one more costs about ten times as much.
    boost
        None leaves events in the laboratory. A number sees each in a random frame of its own:
        turned uniformly, then boosted in a uniform direction with a rapidity uniform up to it.
    energies
        Least and largest energy in the centre of mass, in GeV.
    seed
        Of the events and their frames.

    Examples
    --------
    >>> task = amplitudes(40, 10, 50)
    >>> task.x_train.shape, task.y_train.shape, task.generator.shape, task.kinds
    (torch.Size([40, 5, 4]), torch.Size([40, 1]), torch.Size([6, 4, 4]), (0, 0, 1, 2, 2))
    """
    momenta = []
    streams = np.random.default_rng(seed).spawn(3)
    for size, stream in zip((n_train, n_validation, n_test), streams, strict=True):
        event_stream, frame_stream = stream.spawn(2)
        events = scatter(size, gluons, event_stream, energies=energies)
        if boost is not None:
            events = events @ random_lorentz(size, frame_stream, boost).mT
        momenta.append(events)
    return _task(_process(gluons), momenta, [squared_amplitude(p) for p in momenta], _kinds(gluons))


def squared_amplitude(
    momenta: Float[np.ndarray, "events particles 4"],
) -> Float[np.ndarray, " events"]:
    """|M|² of q q̄ → Z + gluons at tree level, in GeV^(2 - 2 · gluons).

    Quarks are massless and up-type, the coupling to the Z is that of the standard model. Sums are
    over polarisations and colours of Z and gluons, averages over spins and colours of quark and
    antiquark, and n gluons count 1/n!, because they are alike. α_s = 0.118, α = 1/132.507 and
    sin²θ_W = 0.2222 are constants. The Z has the mass that its momentum has.

    Parameters
    ----------
    momenta
        (E, px, py, pz) of quark, antiquark, Z and gluons in GeV. They must be on their mass shells
        and conserve momentum; neither is checked.

    Examples
    --------
    With one gluon there is a closed formula:

    >>> event = scatter(1, 1, np.random.default_rng(0))
    >>> quark, antiquark, z, _ = event[0]
    >>> def mass2(p: np.ndarray) -> float:
    ...     return p[0] ** 2 - p[1:] @ p[1:]
    >>> s, t, u = mass2(quark + antiquark), mass2(quark - z), mass2(antiquark - z)
    >>> left, right = z_couplings()
    >>> coupling = 4 * np.pi * ALPHA_STRONG * (left**2 + right**2) / 2
    >>> closed = 8 / 9 * coupling * (t**2 + u**2 + 2 * s * mass2(z)) / (t * u)
    >>> bool(np.isclose(squared_amplitude(event), closed, rtol=1e-10))
    True
    """
    if momenta.ndim != 3 or momenta.shape[1] < 4 or momenta.shape[2] != 4:
        raise ValueError(
            f"momenta have shape {momenta.shape}; expected (events, particles, 4) with quark, "
            f"antiquark, Z and at least one gluon"
        )
    gluons = momenta.shape[1] - 3
    left, right = z_couplings()
    # With real polarisations the amplitudes of a right-handed quark are the complex conjugates of
    # the left-handed one's: both have the same sum.
    couplings = (4 * math.pi * ALPHA_STRONG) ** gluons * (left**2 + right**2)
    starts = range(0, len(momenta), _CHUNK)
    summed = [_summed_square(momenta[start : start + _CHUNK]) for start in starts]
    return couplings / _INITIAL_STATES / math.factorial(gluons) * np.concatenate([[], *summed])


def z_couplings() -> tuple[float, float]:
    """Couplings of the Z to a left- and a right-handed up-type quark.

    e / (sin θ cos θ) times T³ - Q sin²θ, and times -Q sin²θ.
    """
    unit = math.sqrt(4 * math.pi * ALPHA / (SIN2_WEAK * (1 - SIN2_WEAK)))
    return unit * (_ISOSPIN - _CHARGE * SIN2_WEAK), -unit * _CHARGE * SIN2_WEAK


def amplitudes_from_file(
    path: str | Path, *, gluons: int = 2, events: int | None = None
) -> FourMomenta:
    """Read the published events of q q̄ → Z + gluons.

    As in the reference, rows are split in the file's order: 40 % for training, then 50 % for
    testing, then 10 % for validation.

    Parameters
    ----------
    path
        Either amplitudes.hdf5, with one array for each process (``zg``, ``zgg``, …), which needs
        h5py; or a .npy with the array of the process. A row has the momenta of quark, antiquark,
        Z and gluons, each as (E, px, py, pz), and the squared amplitude.
    gluons
        Number of gluons.
    events
        Take only so many rows, from the first on.

    Raises
    ------
    DataError
        For anything that is not such a file.
    ValueError
        If too few rows are asked for.
    """
    if events is not None and events < _FEWEST_ROWS:
        raise ValueError(f"events={events}: at least {_FEWEST_ROWS} are needed")
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file. {_HOW_TO_GET}")
    rows = _read_rows(path, _process(gluons), events)
    columns = 4 * (3 + gluons) + 1
    if rows.ndim != 2 or rows.shape[1] != columns:
        raise DataError(
            f"{path}: the array has shape {rows.shape}; with {gluons} gluons expected "
            f"(events, {columns})"
        )
    if rows.dtype.kind != "f":
        raise DataError(f"{path}: the array has dtype {rows.dtype}; floats are needed")
    if len(rows) < _FEWEST_ROWS:
        raise DataError(f"{path}: {len(rows)} events; at least {_FEWEST_ROWS} are needed")
    message = non_finite_message(rows, what="the array")
    if message:
        raise DataError(f"{path}: {message}")
    if rows[:, -1].min() <= 0:
        raise DataError(
            f"{path}: row {rows[:, -1].argmin()} has a squared amplitude that is not positive; "
            f"its logarithm is the target"
        )
    # As float, because half precision cannot hold the bound.
    if float(np.abs(rows).max()) > _LARGEST_NUMBER:
        raise DataError(f"{path}: holds numbers beyond {_LARGEST_NUMBER:g}, which no event has")
    # All are divided by their spread.
    rows = rows.astype(np.float64)
    _check_mass_shells(path, rows[:, :-1].reshape(len(rows), -1, 4))
    if np.std(rows[:, :-1]) == 0 or np.std(np.log(rows[:, -1])) == 0:
        raise DataError(f"{path}: all momenta, or all squared amplitudes, are the same")
    # The reference rounds down where training ends and where validation starts.
    train, test = int(_TRAIN * len(rows)), int((1 - _VALIDATION) * len(rows))
    parts = rows[:train], rows[test:], rows[train:test]
    return _task(
        _process(gluons),
        [part[:, :-1].reshape(len(part), -1, 4) for part in parts],
        [part[:, -1] for part in parts],
        _kinds(gluons),
    )


def _check_mass_shells(path: Path, momenta: np.ndarray) -> None:
    """Other orders of particles or components would be read without a word, and mean nothing."""
    energy2 = np.square(momenta[..., 0])
    off = np.abs(energy2 - np.square(momenta[..., 1:]).sum(-1)) / np.maximum(energy2, 1e-300)
    off[:, _NAMES.index("Z")] = 0.0
    if off.max() > _OFF_SHELL:
        row, particle = np.unravel_index(off.argmax(), off.shape)
        name = (*_NAMES, *["gluon"] * momenta.shape[1])[particle]
        raise DataError(
            f"{path}: in row {row} the {name} has a mass, by {off.max():.2g} of its squared "
            f"energy; expected quark, antiquark, Z and gluons in this order, each as "
            f"(E, px, py, pz)"
        )


def pair_mass(
    n_train: int = 10_000, n_validation: int = 2_000, n_test: int = 5_000, *, seed: int = 0
) -> FourMomenta:
    """The squared invariant mass of two particles, the simplest task of this kind.

    Their momenta are standard normal, their masses uniform on [0.5, 1.5]: if masses were constant,
    a scaling of all momenta could not be told from a symmetry.

    Parameters
    ----------
    n_train, n_validation, n_test
        Numbers of pairs.
    seed
        Of the momenta.

    Examples
    --------
    >>> task = pair_mass(100, 20, 50)
    >>> total = task.unit * task.x_test.sum(1)
    >>> logarithm = (total[:, 0] ** 2 - total[:, 1:].square().sum(1)).log()
    >>> standardised = (logarithm - task.log_mean) / task.log_deviation
    >>> torch.allclose(standardised, task.y_test[:, 0], atol=1e-4)
    True
    """
    momenta = []
    streams = np.random.default_rng(seed).spawn(3)
    for size, stream in zip((n_train, n_validation, n_test), streams, strict=True):
        mass = stream.uniform(0.5, 1.5, (size, 2, 1))
        space = stream.standard_normal((size, 2, 3))
        energy = np.sqrt(mass**2 + np.square(space).sum(-1, keepdims=True))
        momenta.append(np.concatenate([energy, space], axis=-1))
    totals = [p.sum(1) for p in momenta]
    squares = [total[:, 0] ** 2 - np.square(total[:, 1:]).sum(1) for total in totals]
    return _task("pair-mass", momenta, squares, (0, 0))


def _summed_square(momenta: np.ndarray) -> np.ndarray:
    """Σ |M|² over colours and polarisations for a left-handed quark, without couplings."""
    gluons = range(3, momenta.shape[1])
    found = ordered_amplitudes(
        momenta,
        massive_polarisations(momenta[:, 2].T),
        [gluon_polarisations(momenta[:, i].T) for i in gluons],
    )
    flat = found.reshape(len(found), -1, len(momenta))
    mixed = np.tensordot(colour_matrix(len(gluons)), flat, axes=1)
    return np.sum(np.real(flat.conj() * mixed), axis=(0, 1))


def _task(
    name: str,
    momenta: Sequence[np.ndarray],
    invariants: Sequence[np.ndarray],
    kinds: tuple[int, ...],
) -> FourMomenta:
    """Training, validation and test part, standardised together."""
    parts = ("train", "validation", "test")
    for part, p in zip(parts, momenta, strict=True):
        if not len(p):
            raise ValueError(f"n_{part}=0: at least one sample is needed")
    unit = float(np.concatenate(momenta).std())
    logarithms = [np.log(a) for a in invariants]
    mean, deviation = (float(f(np.concatenate(logarithms))) for f in (np.mean, np.std))
    tensors: dict[str, Any] = {}
    for part, p, logarithm in zip(parts, momenta, logarithms, strict=True):
        y = (logarithm - mean) / deviation
        tensors[f"x_{part}"] = torch.from_numpy(p / unit).float()
        tensors[f"y_{part}"] = torch.from_numpy(y).float().unsqueeze(1)
    return FourMomenta(
        name=name,
        **tensors,
        generator=so_pq(1, 3),
        output="invariant",
        feature_names=FEATURES,
        kinds=kinds,
        unit=unit,
        log_mean=mean,
        log_deviation=deviation,
    )


def _process(gluons: int) -> str:
    """As the published file calls it."""
    return "z" + "g" * gluons


def _kinds(gluons: int) -> tuple[int, ...]:
    return 0, 0, 1, *[2] * gluons


def _read_rows(path: Path, process: str, events: int | None) -> np.ndarray:
    readers = {".npy": _read_npy, ".h5": _read_hdf5, ".hdf5": _read_hdf5}
    if path.suffix.lower() not in readers:
        raise DataError(
            f"{path}: unknown kind of file {path.suffix!r}; choose from {', '.join(readers)}"
        )
    return readers[path.suffix.lower()](path, process, events)


def _read_npy(path: Path, process: str, events: int | None) -> np.ndarray:
    try:
        with path.open("rb") as file:
            check_npy(file, path.stat().st_size)
        return np.array(np.lib.format.open_memmap(path, mode="r")[:events])
    except Exception as error:
        # Damaged headers raise anything, from OverflowError to tokenize.TokenError.
        raise DataError(
            f"{path}: not a readable .npy of the process {process} ({in_short(error)})"
        ) from None


def _read_hdf5(path: Path, process: str, events: int | None) -> np.ndarray:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise DataError(
            f"{path}: HDF5 needs: pip install 'lieaugmenter[hdf5]'. A .npy of the process "
            f"{process} needs nothing"
        ) from None
    try:
        with h5py.File(path, "r") as file:
            names = list(file)
            if process not in names:
                found = enumerated(names) or "none"
                raise DataError(f"{path}: no array {process!r}; the file has {found}")
            # A link could lead to any other file on this machine.
            if not isinstance(file.get(process, getlink=True), h5py.HardLink):
                raise DataError(f"{path}: {process!r} is a link; an array is needed")
            return _read_dataset(path, file[process], h5py, events)
    except DataError:
        raise
    except Exception as error:
        # Damaged files raise anything, from RuntimeError to KeyError.
        raise DataError(f"{path}: not a readable HDF5 file of arrays ({in_short(error)})") from None


def _read_dataset(path: Path, found: Any, h5py: Any, events: int | None) -> np.ndarray:
    if not isinstance(found, h5py.Dataset):
        raise DataError(f"{path}: {found.name!r} is no array")
    if found.external or found.is_virtual:
        raise DataError(f"{path}: {found.name!r} keeps its numbers in other files; copy them here")
    if found.dtype.kind != "f":
        raise DataError(f"{path}: the array has dtype {found.dtype}; floats are needed")
    wanted = found.shape if events is None else (min(events, *found.shape[:1]), *found.shape[1:])
    check_unpacked(path, math.prod(wanted) * found.dtype.itemsize, path.stat().st_size)
    return found[:events]
