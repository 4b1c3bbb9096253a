"""QM9: small organic molecules, twelve properties that no rigid motion changes.

130,831 molecules of up to 29 atoms H, C, N, O, F: GDB-9's 133,885 without the 3,054 whose geometry
the authors could not confirm ("uncharacterised"), as in every published comparison. What was
chosen, as in LieConv (and Cormorant, EGNN) unless said otherwise, so that errors can be compared:

- **Split**: `standard_split`, a permutation of the 130,831 with NumPy's seed 0.
- **Positions** in Å as published: not centred and not scaled. A translation is among the
  symmetries to be found, and centring would take it away.
- **Energies** in eV by 27.2114 eV a hartree. LieConv holds the zero-point energy in meV; here it
  is in eV like the others.
- **Thermochemical labels** (U₀, U, H, G, and the heat capacity) are without those of the free
  atoms, which the charges alone determine; float32 tells totals apart by 1 or 2 meV only.
  `Molecules.targets` has the totals, in float64.
- **Standardisation** is left to training. LieConv subtracts the mean and divides by the standard
  deviation of the training labels; its code calls them median and mad.

Charges stay and positions move: an input is ``{"positions": (n, atoms, 3), "charges": (n, atoms),
"mask": (n, atoms)}``, padded at the end with zeros.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from lieaugmenter.actions import Action, AffineAction, StructuredAction
from lieaugmenter.data.files import DataError
from lieaugmenter.data.qm9_files import (
    ELEMENTS,
    PackedMolecules,
    find_source,
    read_source,
    source_digest,
)
from lieaugmenter.data.store import CACHE_VARIABLE, cache_folder
from lieaugmenter.data.task import Task
from lieaugmenter.learning.batches import PaddedBatches
from lieaugmenter.lie.catalogue import se
from lieaugmenter.runs import RunError, read_tensors, write_tensors

AXES = ("x", "y", "z", "1")
HARTREE = 27.2114  # in eV, as rounded by LieConv
# To pad to one of five lengths takes 5.6 % more atoms than there are; to 29 always, 61 %. The best
# six lengths would take 3.8 %, for one more shape to compile and record.
LENGTHS = (16, 18, 20, 23, 29)
_MOLECULES, _TRAIN, _VALIDATION = 130_831, 100_000, 17_748
# SHA-256 of the molecules' numbers in GDB-9, int32: which 3,054 were left out.
_INDEX = "54e3c2872ae88920eb296f5a973cb52c0c571e445ca3d744bfedff5d4722f08c"
# Of the prepared form: to be raised whenever it changes.
_VERSION = 1


@dataclass(frozen=True)
class Property:
    """One of the twelve properties.

    Attributes
    ----------
    meaning
        What it is.
    unit
        Of `Molecules.targets` and of a task's labels.
    factor
        From the unit of the publication.
    of_atoms
        Its value for free atoms H, C, N, O, F in the unit of the publication, 0 where it has none.
    """

    meaning: str
    unit: str
    factor: float = 1.0
    of_atoms: tuple[float, ...] = (0.0,) * len(ELEMENTS)


# Values of free atoms: "atomref.txt" of the publication, in hartree and cal/(mol K).
PROPERTIES: Mapping[str, Property] = {
    "mu": Property("dipole moment", "D"),
    "alpha": Property("isotropic polarisability", "bohr³"),
    "homo": Property("energy of the highest occupied orbital", "eV", HARTREE),
    "lumo": Property("energy of the lowest unoccupied orbital", "eV", HARTREE),
    "gap": Property("lumo - homo", "eV", HARTREE),
    "r2": Property("electronic spatial extent", "bohr²"),
    "zpve": Property("zero-point vibrational energy", "eV", HARTREE),
    "u0": Property(
        "internal energy at 0 K",
        "eV",
        HARTREE,
        (-0.500273, -37.846772, -54.583861, -75.064579, -99.718730),
    ),
    "u298": Property(
        "internal energy at 298.15 K",
        "eV",
        HARTREE,
        (-0.498857, -37.845355, -54.582445, -75.063163, -99.717314),
    ),
    "h298": Property(
        "enthalpy at 298.15 K",
        "eV",
        HARTREE,
        (-0.497912, -37.844411, -54.581501, -75.062219, -99.716370),
    ),
    "g298": Property(
        "free energy at 298.15 K",
        "eV",
        HARTREE,
        (-0.510927, -37.861317, -54.598897, -75.079532, -99.733544),
    ),
    "cv": Property("heat capacity at 298.15 K", "cal/(mol K)", 1.0, (2.981,) * len(ELEMENTS)),
}


@dataclass(frozen=True, eq=False)
class Molecules:
    """Molecules, padded to the largest, with the twelve properties.

    Attributes
    ----------
    positions
        In Å; zero for padded atoms, which come last.
    charges
        Of the nuclei; 0 for padded atoms.
    index
        Numbers in GDB-9, from 1 to 133,885.
    targets
        A column for each of `PROPERTIES`, in its unit.
    """

    positions: Float[Tensor, "n atoms 3"]
    charges: UInt8[Tensor, "n atoms"]
    index: Int[Tensor, " n"]
    targets: Float[Tensor, "n 12"]

    def __len__(self) -> int:
        return len(self.charges)

    @property
    def mask(self) -> Bool[Tensor, "n atoms"]:
        """True for atoms that are there."""
        return self.charges > 0

    @property
    def counts(self) -> Int[Tensor, " n"]:
        """Atoms of each molecule."""
        return self.mask.sum(1)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of `targets`."""
        return tuple(PROPERTIES)

    @property
    def units(self) -> tuple[str, ...]:
        """Of the columns of `targets`."""
        return tuple(known.unit for known in PROPERTIES.values())

    def inputs(self, chosen: Int[Tensor, " m"]) -> dict[str, Tensor]:
        """What a network gets of the chosen molecules: positions, charges and mask."""
        charges = self.charges[chosen]
        return {"positions": self.positions[chosen], "charges": charges, "mask": charges > 0}

    def labels(self, name: str, chosen: Int[Tensor, " m"]) -> Float[Tensor, "m 1"]:
        """A property of the chosen molecules less that of their free atoms, float32."""
        known = _property(name)
        total = self.targets[chosen, self.names.index(name)]
        of_charge = torch.zeros(256, dtype=torch.float64)
        of_charge[list(ELEMENTS.values())] = torch.tensor(known.of_atoms, dtype=torch.float64)
        of_atoms = of_charge[self.charges[chosen].long()].sum(1) * known.factor
        return (total - of_atoms).float().unsqueeze(1)


class MoleculeTask(Task):
    """A task whose inputs are molecules."""

    @property
    def action(self) -> Action:
        """Positions move as points of space; charges and padded atoms stay."""
        return StructuredAction({"positions": AffineAction(3)}, masks={"positions": "mask"})


def qm9(
    name: str = "homo",
    source: Path | None = None,
    *,
    n_train: int = _TRAIN,
    n_validation: int = _VALIDATION,
    n_test: int = _MOLECULES - _TRAIN - _VALIDATION,
    most_atoms: int | None = None,
) -> MoleculeTask:
    """One property of QM9's molecules, which is invariant under the rigid motions se(3).

    x is ``{"positions", "charges", "mask"}`` padded to 29 atoms (or `most_atoms`), y is (n, 1) in
    the property's unit; the module's text says what was chosen. `molecule_batches` makes batches.

    Parameters
    ----------
    name
        Of the property, one of `PROPERTIES`.
    source
        An .npz, or a folder of the tables of `qm9pack`; see `read_qm9`.
    n_train, n_validation, n_test
        Numbers of molecules; smaller sets are the first of larger ones.
    most_atoms
        Only molecules of at most so many atoms, for a try on a small machine; from 3 to 29.

    Raises
    ------
    DataError
        If QM9 is not to be had, or is damaged or incomplete.
    """
    _property(name)
    parts, counts = standard_split(), (n_train, n_validation, n_test)
    chosen = _first_of(parts, counts)
    molecules = read_qm9(source)
    if most_atoms is not None:
        small = molecules.counts <= most_atoms
        chosen = _first_of([part[small[part]] for part in parts], counts)
        molecules = replace(
            molecules,
            positions=molecules.positions[:, :most_atoms],
            charges=molecules.charges[:, :most_atoms],
        )
    return molecule_task(molecules, name, chosen)


def _first_of(parts: Sequence[Tensor], counts: Sequence[int]) -> tuple[Tensor, ...]:
    """So many rows of each part, or an error that says how many there are."""
    for what, count, part in zip(("n_train", "n_validation", "n_test"), counts, parts, strict=True):
        if not 1 <= count <= len(part):
            raise ValueError(f"{what}={count}: from 1 to {len(part)} molecules are there")
    return tuple(part[:count] for count, part in zip(counts, parts, strict=True))


def molecule_task(
    molecules: Molecules, name: str, parts: tuple[Int[Tensor, " n"], ...]
) -> MoleculeTask:
    """One property of molecules as a task.

    Parameters
    ----------
    molecules
        The molecules.
    name
        Of the property.
    parts
        Rows to train on, to validate on and to test on.
    """
    train, validation, test = parts
    return MoleculeTask(
        name=f"qm9-{name}",
        x_train=molecules.inputs(train),
        y_train=molecules.labels(name, train),
        x_validation=molecules.inputs(validation),
        y_validation=molecules.labels(name, validation),
        x_test=molecules.inputs(test),
        y_test=molecules.labels(name, test),
        generator=se(3),
        output="invariant",
        feature_names=AXES,
    )


def standard_split() -> tuple[Int[Tensor, " n"], Int[Tensor, " m"], Int[Tensor, " k"]]:
    """The rows of QM9 to train on, to validate on and to test on: 100,000, 17,748 and 13,083.

    The rows are in the order of GDB-9.

    Examples
    --------
    >>> train, validation, test = standard_split()
    >>> len(train), len(validation), len(test), train[:3].tolist()
    (100000, 17748, 13083, [130195, 68784, 7957])
    """
    # The legacy generator, because it is the one that drew the published split.
    order = torch.from_numpy(np.random.RandomState(0).permutation(_MOLECULES))
    train, validation, test = order.tensor_split([_TRAIN, _TRAIN + _VALIDATION])
    return train, validation, test


def molecule_batches(
    x: Mapping[str, Tensor], y: Tensor, size: int, *, seed: int, device: torch.device
) -> PaddedBatches:
    """Batches of molecules of similar sizes, padded to one of `LENGTHS`, for `fit`.

    For networks that compute padding like atoms. Such a batch is no fair sample of all molecules:
    a network with batch norm sees other statistics in training than in use. One that leaves padding
    out by itself does better with molecules drawn at random, ``fit(…, (x, y))``.
    """
    return PaddedBatches(
        dict(x), y, size, counts=x["mask"].sum(1), lengths=LENGTHS, seed=seed, device=device
    )


def pack(x: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All atoms of a padded batch on one axis, for networks that take no padding.

    Elements act on padded batches, so such a network packs what it is given.

    Parameters
    ----------
    x
        ``{"positions": (n, atoms, 3), "charges": (n, atoms), "mask": (n, atoms)}``.

    Returns
    -------
    dict
        ``{"positions": (there, 3), "charges": (there,), "molecule": (there,)}``, the last one the
        number of the molecule that an atom belongs to.

    Examples
    --------
    >>> x = {"positions": torch.ones(2, 3, 3), "charges": torch.tensor([[8, 1, 1], [9, 1, 0]])}
    >>> packed = pack(x | {"mask": x["charges"] > 0})
    >>> packed["charges"].tolist(), packed["molecule"].tolist()
    ([8, 1, 1, 9, 1], [0, 0, 0, 1, 1])
    """
    mask = x["mask"]
    return {
        "positions": x["positions"][mask],
        "charges": x["charges"][mask],
        "molecule": mask.nonzero()[:, 0],
    }


# -- reading and keeping ---------------------------------------------------------------------------


def read_qm9(source: Path | None = None) -> Molecules:
    """All of QM9, in the order of GDB-9.

    Parameters
    ----------
    source
        An .npz of packed arrays (charges `z`, positions `pos`, `n_atoms`, `index`, and an array
        for each property), or the folder of the package `qm9pack`'s tables. Without it
        ``qm9/qm9.npz`` of the folder that ``LIEAUGMENTER_DATA`` names, else the installed package.

    Raises
    ------
    DataError
        If it is not there, damaged, or not the 130,831 molecules of the standard set.
    """
    place = find_source() if source is None else source
    molecules = read_molecules(place)
    if len(molecules) != _MOLECULES:
        raise DataError(
            f"{place}: holds {len(molecules):,} molecules; QM9 without the 3,054 uncharacterised "
            f"ones has {_MOLECULES:,}. Get the whole file: the split and all published errors are "
            f"of that set"
        )
    if hashlib.sha256(molecules.index.to(torch.int32).numpy().tobytes()).hexdigest() != _INDEX:
        raise DataError(
            f"{place}: holds other molecules than QM9 without the 3,054 uncharacterised ones, or "
            f"not in the order of GDB-9. The split and all published errors are of that set"
        )
    return molecules


def read_molecules(source: Path) -> Molecules:
    """Molecules of any number from files in QM9's layout, see `read_qm9`.

    The first time they are prepared and kept in the cache, under a name that tells the source's
    content; a kept file that is damaged is made anew.

    Raises
    ------
    DataError
        If the source is missing or damaged.
    """
    kept = cache_folder() / "qm9" / f"{source_digest(source)[:24]}-v{_VERSION}.safetensors"
    known = _read_kept(kept)
    if known is not None:
        return known
    prepared = _prepare(read_source(source))
    tensors = vars(prepared)
    try:
        write_tensors(kept, tensors, {"sha256": _digest(tensors)})
    except OSError as error:
        warnings.warn(
            f"{kept.parent}: cannot be written ({error.strerror or error}), so the molecules are "
            f"prepared again next time. Set {CACHE_VARIABLE} to a folder with room",
            stacklevel=2,
        )
    return prepared


def _read_kept(path: Path) -> Molecules | None:
    """What was prepared before, unless it is not there or damaged."""
    try:
        mapped, about = read_tensors(path)
    except RunError:
        return None
    if set(mapped) != {item.name for item in fields(Molecules)}:
        return None
    # Copied: a mapped file that is cut while it is in use would end the process.
    tensors = {name: tensor.clone() for name, tensor in mapped.items()}
    return Molecules(**tensors) if about.get("sha256") == _digest(tensors) else None


def _digest(tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].numpy().data)
    return total.hexdigest()


def _prepare(packed: PackedMolecules) -> Molecules:
    """Pad, and convert units."""
    n, longest = len(packed.counts), int(packed.counts.max())
    real = np.arange(longest) < packed.counts[:, None]
    positions = np.zeros((n, longest, 3), np.float32)
    charges = np.zeros((n, longest), np.uint8)
    positions[real], charges[real] = packed.positions, packed.charges
    columns = [packed.columns[name] * known.factor for name, known in PROPERTIES.items()]
    return Molecules(
        positions=torch.from_numpy(positions),
        charges=torch.from_numpy(charges),
        index=torch.from_numpy(packed.index),
        targets=torch.from_numpy(np.stack(columns, 1)),
    )


def _property(name: str) -> Property:
    if name not in PROPERTIES:
        raise ValueError(f"unknown property {name!r}; choose from {', '.join(sorted(PROPERTIES))}")
    return PROPERTIES[name]
