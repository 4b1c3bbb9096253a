"""The files that QM9 comes in, read and checked: an .npz, or the tables of the package `qm9pack`.

`qm9pack` is never imported, only found: its tables are plain .csv, and importing it needs pandas
and a part of setuptools that newer releases no longer have.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lieaugmenter.data.files import DataError, read_arrays
from lieaugmenter.data.store import FOLDER_VARIABLE, local_path
from lieaugmenter.runs import in_short

LOCAL = "qm9/qm9.npz"
TABLES = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")
# Charges of the elements that occur in QM9.
ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
# For each of the twelve properties, its array in the .npz and its column in the tables. Both hold
# the units of the publication.
COLUMNS = {
    "mu": ("mu_debye", "Dipole_debye"),
    "alpha": ("alpha_bohr3", "Polarizability_bohr3"),
    "homo": ("homo_hartree", "HOMO_au"),
    "lumo": ("lumo_hartree", "LUMO_au"),
    "gap": ("gap_hartree", "HOMO_LUMO_gap_au"),
    "r2": ("r2_bohr2", "R2_bohr2"),
    "zpve": ("zpve_hartree", "ZPVE_au"),
    "u0": ("u0_hartree", "InternalEnergy_0K_au"),
    "u298": ("u298_hartree", "InternalEnergy_298K_au"),
    "h298": ("h298_hartree", "Enthalphy_298K_au"),
    "g298": ("g298_hartree", "GibbsFreeEnergy_298K_au"),
    "cv": ("cv_cal_mol_k", "Heatcapacity_Cv_cal_mol_K"),
}
_HOW_TO_GET = (
    "pip install 'lieaugmenter[qm9]' brings it, or set "
    f"{FOLDER_VARIABLE} to a folder that has it as {LOCAL}"
)


@dataclass(frozen=True, eq=False)
class PackedMolecules:
    """Molecules one after another, their atoms on one axis, in the units of the publication.

    Attributes
    ----------
    charges
        (atoms,) of the nuclei.
    positions
        (atoms, 3) in Å.
    counts
        (n,) atoms of each molecule.
    index
        (n,) their numbers in GDB-9, from 1 to 133,885.
    columns
        For each of the twelve properties, (n,).
    """

    charges: np.ndarray
    positions: np.ndarray
    counts: np.ndarray
    index: np.ndarray
    columns: dict[str, np.ndarray]


def find_source() -> Path:
    """The .npz in the folder that ``LIEAUGMENTER_DATA`` names, or the tables of `qm9pack`.

    Raises
    ------
    DataError
        If neither is there, with how to get them.
    """
    local = local_path(LOCAL)
    if local is not None:
        return local
    package = importlib.util.find_spec("qm9pack")
    if package is None or not package.submodule_search_locations:
        raise DataError(f"QM9 is not on this machine. {_HOW_TO_GET}")
    return Path(package.submodule_search_locations[0]) / "data"


def source_digest(source: Path) -> str:
    """SHA-256 of the file, or of the three tables in a folder: what a prepared form was made of."""
    total = hashlib.sha256()
    for path in _files(source):
        with path.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()


def read_source(source: Path) -> PackedMolecules:
    """Read an .npz or a folder of the three tables.

    Raises
    ------
    DataError
        For files that are missing, cut short or damaged, or that hold what no molecule has.
    """
    paths = _files(source)
    found = _read_npz(source) if paths == [source] else _read_tables(paths)
    _check(source, found)
    return found


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        paths = [source / name for name in TABLES]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise DataError(
                f"{source}: no {missing[0]}; a folder of QM9 holds {', '.join(TABLES)}, as the "
                f"package qm9pack does. {_HOW_TO_GET}"
            )
        return paths
    if not source.is_file():
        raise DataError(f"{source}: no such file. {_HOW_TO_GET}")
    return [source]


def _read_npz(path: Path) -> PackedMolecules:
    columns = {name: array for name, (array, _) in COLUMNS.items()}
    hint = ". This is not QM9 as this project reads it: charges z and positions pos of all atoms "
    hint += "one after another, n_atoms, index, and an array for each property"
    arrays = read_arrays(path, ("z", "pos", "n_atoms", "index", *columns.values()), hint)
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise DataError(f"{path}: {name} has dtype {array.dtype}; numbers are needed")
    return PackedMolecules(
        charges=arrays["z"],
        positions=arrays["pos"],
        counts=arrays["n_atoms"].astype(np.int64),
        index=arrays["index"].astype(np.int64),
        columns={name: arrays[array].astype(np.float64) for name, array in columns.items()},
    )


def _read_tables(paths: list[Path]) -> PackedMolecules:
    parts = [_read_table(path) for path in paths]
    return PackedMolecules(
        charges=np.concatenate([part.charges for part in parts]),
        positions=np.concatenate([part.positions for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        index=np.concatenate([part.index for part in parts]),
        columns={name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS},
    )


def _read_table(path: Path) -> PackedMolecules:
    wanted = ["Index", "N_atoms", "Elements", "XYZ_Ang", *(table for _, table in COLUMNS.values())]
    cells = dict(zip(wanted, zip(*_rows(path, wanted), strict=True), strict=True))
    try:
        symbols = _flat(cells["Elements"])
        return PackedMolecules(
            charges=np.array([ELEMENTS[symbol] for symbol in symbols], dtype=np.uint8),
            positions=np.array(_flat(cells["XYZ_Ang"]), dtype=np.float64).reshape(-1, 3),
            counts=np.array(cells["N_atoms"], dtype=np.int64),
            index=np.array(cells["Index"], dtype=np.int64),
            columns={
                name: np.array(cells[table], dtype=np.float64)
                for name, (_, table) in COLUMNS.items()
            },
        )
    except (KeyError, ValueError) as error:
        raise DataError(f"{path}: damaged ({in_short(error)}). {_AGAIN}") from None


_AGAIN = "Install it again: pip install --force-reinstall qm9pack"


def _rows(path: Path, wanted: list[str]) -> list[list[str]]:
    """The wanted cells of every row."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            missing = [name for name in wanted if name not in header]
            if missing:
                raise DataError(f"{path}: no column {missing[0]!r}. {_AGAIN}")
            places = [header.index(name) for name in wanted]
            found = []
            for row in rows:
                if len(row) != len(header):
                    raise DataError(
                        f"{path}: damaged or cut short: line {rows.line_num} has {len(row)} cells, "
                        f"the header has {len(header)}. {_AGAIN}"
                    )
                found.append([row[place] for place in places])
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: not a readable table ({in_short(error)}). {_AGAIN}") from None
    if not found:
        raise DataError(f"{path}: the table has no rows. {_AGAIN}")
    return found


def _flat(lists: tuple[str, ...]) -> list[str]:
    """The items of all lists that are written as in Python, one after another."""
    return ",".join(lists).translate(str.maketrans("", "", "[]' ")).split(",")


def _check(source: Path, found: PackedMolecules) -> None:
    n, atoms = len(found.counts), len(found.charges)
    for name, array, shape in (
        ("positions", found.positions, (atoms, 3)),
        ("numbers in GDB-9", found.index, (n,)),
        *((name, column, (n,)) for name, column in found.columns.items()),
    ):
        if array.shape != shape:
            raise DataError(f"{source}: damaged: {name} of shape {array.shape}, expected {shape}")
    if n == 0 or found.counts.min() < 1 or found.counts.sum() != atoms:
        raise DataError(
            f"{source}: damaged: the molecules' numbers of atoms add up to {found.counts.sum()}, "
            f"there are {atoms} atoms"
        )
    owner = np.repeat(found.index, found.counts)
    unknown = ~np.isin(found.charges, list(ELEMENTS.values()))
    for what, bad in (
        ("an atom that is none of H, C, N, O, F", owner[unknown]),
        ("a position that is no finite number", owner[~np.isfinite(found.positions).all(1)]),
        *(
            (f"{name} that is no finite number", found.index[~np.isfinite(column)])
            for name, column in found.columns.items()
        ),
    ):
        if len(bad):
            raise DataError(
                f"{source}: damaged: molecule {bad[0]} of GDB-9 has {what}"
                + (f", and so have {len(bad) - 1} more" if len(bad) > 1 else "")
            )
