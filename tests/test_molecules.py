"""Molecules: what is read, what is kept for the next start, and batches of similar sizes."""

from __future__ import annotations

import csv
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lieaugmenter.actions.base import composition_error
from lieaugmenter.data.files import DataError
from lieaugmenter.data.molecules import (
    HARTREE,
    LENGTHS,
    PROPERTIES,
    Molecules,
    MoleculeTask,
    molecule_batches,
    molecule_task,
    pack,
    qm9,
    read_molecules,
    read_qm9,
    standard_split,
)
from lieaugmenter.data.qm9_files import COLUMNS, ELEMENTS, TABLES
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.batches import PaddedBatches
from lieaugmenter.learning.engine import fit
from lieaugmenter.lie.catalogue import se
from lieaugmenter.lie.elements import Elements
from lieaugmenter.runs import RunFolder, read_tensors, write_tensors

DATA = os.environ.get("LIEAUGMENTER_DATA", "")
needs_qm9 = pytest.mark.skipif(
    not Path(DATA, "qm9", "qm9.npz").is_file(),
    reason="set LIEAUGMENTER_DATA to a folder with qm9/qm9.npz, see read_qm9()",
)
CPU = torch.device("cpu")
N = 90


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LIEAUGMENTER_DATA", raising=False)
    monkeypatch.setenv("LIEAUGMENTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def some_arrays(n: int = N) -> dict[str, np.ndarray]:
    """Molecules of 3 to 29 atoms, in the arrays of the .npz."""
    rng = np.random.default_rng(0)
    counts = rng.integers(3, 30, n)
    atoms = counts.sum()
    properties = {array: rng.normal(size=n).round(4) for array, _ in COLUMNS.values()}
    return {
        "z": rng.choice(list(ELEMENTS.values()), atoms).astype(np.int8),
        # As few decimals as both kinds of files hold exactly.
        "pos": (rng.integers(-640, 640, (atoms, 3)) / 128).astype(np.float32),
        "n_atoms": counts.astype(np.int8),
        "index": np.sort(rng.choice(np.arange(1, 133_886), n, replace=False)).astype(np.int32),
        **properties,
    }


def as_npz(folder: Path, **changes: np.ndarray) -> Path:
    np.savez_compressed(folder / "qm9.npz", **(some_arrays() | changes))
    return folder / "qm9.npz"


def as_tables(folder: Path) -> Path:
    """The same molecules as the tables of qm9pack, with a column more than is needed."""
    arrays = some_arrays()
    symbols = {charge: symbol for symbol, charge in ELEMENTS.items()}
    ends = np.cumsum(arrays["n_atoms"].astype(int))
    for part, rows in zip(TABLES, np.array_split(np.arange(N), 3), strict=True):
        with (folder / part).open("w", newline="") as file:
            table = csv.writer(file)
            names = [column for _, column in COLUMNS.values()]
            table.writerow(["Index", "SMILES", "N_atoms", "Elements", "XYZ_Ang", *names])
            for row in rows:
                atoms = slice(ends[row] - arrays["n_atoms"][row], ends[row])
                elements = [symbols[charge] for charge in arrays["z"][atoms].tolist()]
                properties = [arrays[array][row] for array, _ in COLUMNS.values()]
                place = str(arrays["pos"][atoms].tolist()).replace(" ", "")
                start = [arrays["index"][row], "C,C", len(elements), str(elements), place]
                table.writerow([*start, *properties])
    return folder


@pytest.fixture
def some(tmp_path: Path) -> Molecules:
    return read_molecules(as_npz(tmp_path))


def some_task(molecules: Molecules) -> MoleculeTask:
    train, validation, test = torch.arange(N).split([70, 10, 10])
    return molecule_task(molecules, "homo", (train, validation, test))


def same(a: Molecules, b: Molecules) -> bool:
    return all(torch.equal(tensor, vars(b)[name]) for name, tensor in vars(a).items())


# -- reading ---------------------------------------------------------------------------------------


def test_every_atom_arrives_and_only_padding_is_added(some: Molecules) -> None:
    arrays = some_arrays()
    assert torch.equal(some.counts, torch.from_numpy(arrays["n_atoms"]).long())
    assert torch.equal(some.positions[some.mask], torch.from_numpy(arrays["pos"]))
    assert torch.equal(some.charges[some.mask], torch.from_numpy(arrays["z"]).byte())
    assert not some.positions[~some.mask].any()
    # Real atoms come first.
    assert torch.equal(some.mask, torch.arange(some.mask.shape[1]) < some.counts[:, None])
    assert (some.positions.dtype, some.charges.dtype) == (torch.float32, torch.uint8)


def test_properties_come_in_the_units_that_are_named(some: Molecules) -> None:
    assert some.names == tuple(COLUMNS) == tuple(PROPERTIES)
    for column, (name, unit) in enumerate(zip(some.names, some.units, strict=True)):
        array = COLUMNS[name][0]
        factor = HARTREE if array.endswith("hartree") else 1.0
        assert (
            unit
            == {
                "debye": "D",
                "bohr3": "bohr³",
                "bohr2": "bohr²",
                "hartree": "eV",
                "cal_mol_k": "cal/(mol K)",
            }[array.split("_", 1)[1]]
        )
        torch.testing.assert_close(
            some.targets[:, column], torch.from_numpy(some_arrays()[array] * factor)
        )


def test_labels_are_without_those_of_the_free_atoms(some: Molecules) -> None:
    rows = torch.tensor([5, 2])
    for name, known in PROPERTIES.items():
        for row, label in zip(rows.tolist(), some.labels(name, rows), strict=True):
            charges = some.charges[row].tolist()
            atoms = sum(
                value * charges.count(charge)
                for value, charge in zip(known.of_atoms, ELEMENTS.values(), strict=True)
            )
            total = float(some.targets[row, some.names.index(name)])
            assert float(label) == pytest.approx(total - atoms * known.factor, rel=1e-6)
    thermochemical = {name for name, known in PROPERTIES.items() if any(known.of_atoms)}
    assert thermochemical == {"u0", "u298", "h298", "g298", "cv"}


def test_npz_and_tables_give_the_same_molecules(tmp_path: Path, some: Molecules) -> None:
    assert same(read_molecules(as_tables(tmp_path)), some)


def test_installed_package_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "qm9pack" / "data").mkdir(parents=True)
    (tmp_path / "qm9pack" / "__init__.py").write_text("raise RuntimeError('was imported')")
    as_tables(tmp_path / "qm9pack" / "data")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=rf"qm9pack.data: holds {N} molecules"):
        read_qm9()
    # A local file comes first.
    (tmp_path / "folder" / "qm9").mkdir(parents=True)
    as_npz(tmp_path / "folder" / "qm9")
    monkeypatch.setenv("LIEAUGMENTER_DATA", str(tmp_path / "folder"))
    with pytest.raises(DataError, match=rf"folder.qm9.qm9.npz: holds {N} molecules"):
        read_qm9()


def test_without_any_source_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qm9pack", None)
    with pytest.raises(DataError, match=r"pip install 'lieaugmenter\[qm9\]' .*LIEAUGMENTER_DATA"):
        qm9()


# -- what is kept ----------------------------------------------------------------------------------


def kept_file(cache: Path) -> Path:
    (found,) = (cache / "qm9").iterdir()
    return found


def test_second_start_takes_what_was_kept(tmp_path: Path, cache: Path) -> None:
    path = as_npz(tmp_path)
    assert same(read_molecules(path), read_molecules(path))
    tensors, about = read_tensors(kept_file(cache))
    # Whole and well signed, but other numbers: if they come back, the source was not read.
    tensors["positions"] += 1
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    write_tensors(kept_file(cache), tensors, about | {"sha256": digest.hexdigest()})
    assert torch.equal(read_molecules(path).positions, tensors["positions"])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def turn_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def of_something_else(path: Path) -> None:
    write_tensors(path, {"positions": torch.zeros(3)}, {"sha256": "0"})


@pytest.mark.parametrize("damage", [cut, empty, turn_a_bit, of_something_else])
def test_damaged_kept_file_is_made_anew(
    tmp_path: Path, cache: Path, damage: Callable[[Path], None]
) -> None:
    path = as_npz(tmp_path)
    first = read_molecules(path)
    tensors, about = read_tensors(kept_file(cache))
    whole = {name: tensor.clone() for name, tensor in tensors.items()}  # not in that file's memory
    damage(kept_file(cache))
    assert same(read_molecules(path), first)
    # Not the bytes: the entries of a header come in any order.
    tensors, anew = read_tensors(kept_file(cache))
    assert anew == about
    assert tensors.keys() == whole.keys()
    assert all(torch.equal(tensors[name], whole[name]) for name in whole)


def test_changed_source_is_read_again(tmp_path: Path) -> None:
    path = as_npz(tmp_path)
    before, stamp = read_molecules(path), path.stat()
    as_npz(tmp_path, homo_hartree=some_arrays()["homo_hartree"] + 1)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    difference = read_molecules(path).targets - before.targets
    assert difference.abs().amax(0).nonzero().flatten().tolist() == [list(COLUMNS).index("homo")]


def test_cache_that_cannot_be_written_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIEAUGMENTER_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"cannot be written .* Set LIEAUGMENTER_CACHE"):
        found = read_molecules(as_npz(tmp_path))
    assert len(found) == N


# -- what is wrong ---------------------------------------------------------------------------------


def changed(name: str, place: int, value: float) -> dict[str, np.ndarray]:
    array = some_arrays()[name]
    array.flat[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (changed("pos", 0, np.nan), r"molecule \d+ of GDB-9 has a position that is no finite"),
        (changed("pos", 100, np.inf), r"has a position that is no finite number"),
        (changed("u0_hartree", 3, np.nan), r"molecule \d+ of GDB-9 has u0 that is no finite"),
        (changed("z", 0, 16), r"has an atom that is none of H, C, N, O, F"),
        (changed("z", 0, 0), r"has an atom that is none of H, C, N, O, F"),
        ({"pos": some_arrays()["pos"][:-1]}, r"positions of shape \(\d+, 3\), expected"),
        ({"z": some_arrays()["z"][:-1], "pos": some_arrays()["pos"][:-1]}, r"atoms add up to \d+"),
        ({"n_atoms": some_arrays()["n_atoms"][:-1]}, r"of shape"),
        (changed("n_atoms", 0, -1), r"atoms add up to"),
        ({"lumo_hartree": some_arrays()["lumo_hartree"][:5]}, r"lumo of shape \(5,\), expected"),
        ({"z": np.array(["H"] * 9)}, r"z has dtype <U1; numbers are needed"),
        ({"n_atoms": np.array([], np.int8)}, r"damaged"),
    ],
)
def test_each_wrong_array_gets_its_message(
    tmp_path: Path, cache: Path, changes: dict[str, np.ndarray], message: str
) -> None:
    path = as_npz(tmp_path, **changes)
    with pytest.raises(DataError, match=message) as refused:
        read_molecules(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    # What is wrong is not kept.
    assert not cache.exists()


def test_array_that_is_missing_is_named(tmp_path: Path) -> None:
    arrays = some_arrays()
    del arrays["homo_hartree"]
    np.savez(tmp_path / "qm9.npz", **arrays)
    with pytest.raises(DataError, match=r"no array 'homo_hartree'; the file has z, pos.*not QM9"):
        read_molecules(tmp_path / "qm9.npz")
    with pytest.raises(DataError, match=r"none.npz: no such file. pip install"):
        read_molecules(tmp_path / "none.npz")


def test_cut_file_is_a_data_error_wherever_it_is_cut(tmp_path: Path) -> None:
    path = as_npz(tmp_path)
    content = path.read_bytes()
    for length in np.linspace(0, len(content) - 1, 25).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"qm9.npz: not a readable .npz file"):
            read_molecules(path)


def test_damaged_bytes_never_give_other_molecules(tmp_path: Path, some: Molecules) -> None:
    path = as_npz(tmp_path)
    content = path.read_bytes()
    refused = 0
    for place in np.linspace(0, len(content) - 1, 150).astype(int):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        try:
            # A byte of the archive's own book-keeping may not matter.
            assert same(read_molecules(path), some)
        except DataError:
            refused += 1
    assert refused > 100


def test_part_of_qm9_is_refused_with_its_size(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"holds {N} molecules; .* has 130,831. Get the whole"):
        read_qm9(as_npz(tmp_path))


def test_as_many_other_molecules_are_refused(tmp_path: Path) -> None:
    n = 130_831
    arrays = {array: np.zeros(n) for array, _ in COLUMNS.values()}
    arrays |= {"z": np.ones(n, np.int8), "pos": np.zeros((n, 3), np.float32)}
    arrays |= {"n_atoms": np.ones(n, np.int8), "index": np.arange(1, n + 1)}
    np.savez_compressed(tmp_path / "qm9.npz", **arrays)
    with pytest.raises(DataError, match=r"other molecules than QM9"):
        read_qm9(tmp_path / "qm9.npz")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:-80], r"cut short: line \d+ has \d+ cells, the header has 17"),
        (lambda text: text.replace("N_atoms", "atoms"), r"no column 'N_atoms'"),
        (lambda text: text.splitlines()[0], r"the table has no rows"),
        (lambda text: text.replace("'C'", "'Si'"), r"damaged \('Si'\)"),
        (lambda text: text.replace("[[", "[[?", 1), r"damaged \(could not convert"),
        (lambda text: text.replace("[[", "[[0,0,0],[", 1), r"positions of shape"),
        (lambda text: text.replace("[[", "[[0,", 1), r"damaged"),
    ],
)
def test_each_damaged_table_gets_its_message(
    tmp_path: Path, edit: Callable[[str], str], message: str
) -> None:
    table = as_tables(tmp_path) / TABLES[1]
    table.write_text(edit(table.read_text()))
    with pytest.raises(DataError, match=message) as refused:
        read_molecules(tmp_path)
    assert str(tmp_path) in str(refused.value)
    table.unlink()
    with pytest.raises(DataError, match=r"no qm9_part2.csv"):
        read_molecules(tmp_path)


# -- the task --------------------------------------------------------------------------------------


def test_split_is_a_partition_of_the_published_sizes() -> None:
    parts = standard_split()
    assert [len(part) for part in parts] == [100_000, 17_748, 13_083]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(130_831))


def test_elements_move_positions_of_real_atoms_only(some: Molecules) -> None:
    task = some_task(some)
    x, action = task.x_train, task.action
    assert task.generator is not None
    assert torch.equal(task.generator, se(3))
    assert composition_error(action, se(3), x) < 1e-5
    shift = Elements(torch.tensor([[[0.0, 0, 0, 1, 2, 3]]]).expand(70, 1, 6), se(3))
    moved = action.act(shift, x)
    assert torch.equal(moved["charges"][:, 0], x["charges"])
    assert torch.equal(moved["mask"][:, 0], x["mask"])
    difference = moved["positions"][:, 0] - x["positions"]
    assert not difference[~x["mask"]].any()
    expected = torch.tensor([1.0, 2, 3]).expand_as(difference[x["mask"]])
    torch.testing.assert_close(difference[x["mask"]], expected)
    assert task.y_train.shape == (70, 1)


def test_wrong_names_and_numbers_are_answered_with_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown property 'HOMO'; choose from alpha, cv, g298"):
        qm9("HOMO")
    with pytest.raises(ValueError, match="n_test=13084: from 1 to 13083"):
        qm9(n_test=13_084)


def test_packed_atoms_are_those_of_the_padded_batch(some: Molecules) -> None:
    x = some.inputs(torch.arange(8))
    packed = pack(x)
    for molecule in range(8):
        own = packed["molecule"] == molecule
        assert torch.equal(packed["positions"][own], x["positions"][molecule, x["mask"][molecule]])
        assert torch.equal(packed["charges"][own], x["charges"][molecule, x["mask"][molecule]])
    assert len(packed["molecule"]) == int(x["mask"].sum())


# -- batches ---------------------------------------------------------------------------------------


def numbered(n: int = 1003, *, size: int = 32, seed: int = 0) -> PaddedBatches:
    """Samples of 3 to 29 atoms that tell their number in y and, as charges, their size."""
    counts = torch.randint(3, 30, (n,), generator=torch.Generator().manual_seed(7))
    mask = torch.arange(29) < counts[:, None]
    x = {"positions": torch.randn(n, 29, 3), "charges": mask * counts[:, None], "mask": mask}
    return molecule_batches(x, torch.arange(n).float()[:, None], size, seed=seed, device=CPU)


def test_an_epoch_has_every_sample_once_whole_and_in_few_shapes() -> None:
    batches = numbered()
    seen, shapes = [], []
    for x, y in batches.epoch(0):
        shapes.append(tuple(x["mask"].shape))
        assert x["positions"].shape == (*shapes[-1], 3)
        # Cut where only padding was.
        assert torch.equal(x["mask"].sum(1), x["charges"].amax(1))
        seen.append(y)
    assert torch.equal(torch.cat(seen).flatten().sort().values, torch.arange(1003.0))
    assert len(shapes) == len(batches) == 32
    assert [rows for rows, _ in shapes] == [32] * 31 + [1003 - 31 * 32]
    assert {length for _, length in shapes} == set(LENGTHS)
    # Short and long batches take turns.
    lengths = [length for _, length in shapes]
    assert lengths != sorted(lengths)


def test_batches_hold_similar_sizes() -> None:
    for x, _ in list(numbered().epoch(0))[:-1]:
        shorter = [0, *LENGTHS][LENGTHS.index(x["mask"].shape[1])]
        # Fewer than a batch have moved up from the lengths below.
        assert int((x["mask"].sum(1) <= shorter).sum()) < 32
    padded = sum(x["mask"].numel() for x, _ in numbered().epoch(0))
    assert padded < 0.75 * numbered().x["mask"].numel()


def test_order_is_a_function_of_seed_and_epoch() -> None:
    def labels(batches: PaddedBatches, index: int, skip: int = 0) -> list[Tensor]:
        return [y for _, y in batches.epoch(index, skip)]

    first = torch.cat(labels(numbered(), 3))
    assert torch.equal(first, torch.cat(labels(numbered(), 3)))
    assert torch.equal(first.flatten(), numbered().order(3).float())
    assert not torch.equal(first, torch.cat(labels(numbered(), 4)))
    assert not torch.equal(first, torch.cat(labels(numbered(seed=1), 3)))
    assert torch.equal(first[5 * 32 :], torch.cat(labels(numbered(), 3, skip=5)))


def test_fewer_samples_than_a_batch_are_one_batch() -> None:
    ((x, y),) = numbered(5).epoch(0)
    assert sorted(y.flatten().tolist()) == [0, 1, 2, 3, 4]
    assert torch.equal(x["mask"].sum(1), x["charges"].amax(1))


def test_lengths_that_do_not_fit_are_refused() -> None:
    x, y = {"positions": torch.zeros(2, 9, 3)}, torch.zeros(2, 1)
    options: dict = {"counts": torch.tensor([4, 9]), "seed": 0, "device": CPU}
    for lengths in ((4, 8), (9, 4), (4, 4, 9)):
        with pytest.raises(ValueError, match="must ascend, up to at least 9"):
            PaddedBatches(x, y, 2, lengths=lengths, **options)


class AtomSum(nn.Module):
    """A number of each atom's charge and place, averaged over the atoms that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.calls = 0
        self.interrupt_at = -1

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        self.calls += 1
        if self.calls == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        mask = x["mask"].unsqueeze(-1)
        features = torch.cat([x["positions"], x["charges"].unsqueeze(-1) / 9], -1)
        return (self.inner(features) * mask).sum(1) / mask.sum(1)


def build(task: MoleculeTask) -> tuple[AtomSum, LieAugmenter]:
    torch.manual_seed(3)
    return AtomSum(), LieAugmenter(
        task.action, n_generators=6, output=task.output, n_views=2, range=1.0, warmup_steps=10
    )


def states(*modules: nn.Module) -> list[Tensor]:
    return [value.cpu() for module in modules for value in module.state_dict().values()]


def batches_of(task: MoleculeTask, device: torch.device = CPU) -> PaddedBatches:
    return molecule_batches(task.x_train, task.y_train, 8, seed=0, device=device)


@pytest.mark.parametrize("padded", [False, True])
def test_fit_trains_on_molecules(some: Molecules, padded: bool) -> None:
    """On the mean charge, which a network of atoms can learn."""
    task = some_task(some)
    y_train, y_validation = (
        x["charges"].sum(1, keepdim=True) / x["mask"].sum(1, keepdim=True) / 9
        for x in (task.x_train, task.x_validation)
    )
    task = replace(task, y_train=y_train, y_validation=y_validation)
    model, augmenter = build(task)
    history = fit(
        model,
        augmenter,
        batches_of(task) if padded else (task.x_train, task.y_train),
        validation=(task.x_validation, task.y_validation),
        epochs=20,
        batch_size=8,
        lr=1e-2,
        progress=False,
        device="cpu",
    )
    validation = history.column("validation")
    assert validation[-1] < 0.5 * validation[0]


def test_interrupted_epoch_of_molecules_resumes_to_the_bit(some: Molecules, tmp_path: Path) -> None:
    task = some_task(some)
    options: dict = {"epochs": 2, "progress": False, "device": "cpu"}
    whole = build(task)
    fit(*whole, batches_of(task), **options)
    run = RunFolder.create(tmp_path / "run", {})
    model, augmenter = build(task)
    model.interrupt_at = 12  # the third of nine steps in the second epoch
    with pytest.raises(KeyboardInterrupt, match="resume"):
        fit(model, augmenter, batches_of(task), run=run, **options)
    resumed = build(task)
    fit(*resumed, batches_of(task), run=run, resume=True, **options)
    assert resumed[0].calls == 9 + 9 - 12
    pairs = zip(states(*whole), states(*resumed), strict=True)
    assert all(torch.equal(then, now) for then, now in pairs)


def test_batches_for_another_device_are_refused(some: Molecules) -> None:
    task = some_task(some)
    batches = batches_of(task)
    batches.device = torch.device("meta")
    with pytest.raises(ValueError, match="the batches are made for meta, device is cpu"):
        fit(*build(task), batches, epochs=1, progress=False, device="cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_of_several_shapes_give_the_numbers_of_plain_ones(some: Molecules) -> None:
    task = some_task(some)
    results = []
    for capture in (False, True):
        trained = build(task)
        batches = batches_of(task, torch.device("cuda"))
        fit(*trained, batches, epochs=4, progress=False, device="cuda", capture=capture)
        results.append(states(*trained))
    for plain, captured in zip(*results, strict=True):
        torch.testing.assert_close(captured, plain, rtol=1e-5, atol=1e-6)


# -- the set itself --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Molecules, Path, Path]:
    """QM9, where it was read from, and a cache that has it."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("LIEAUGMENTER_CACHE", str(cache))
        source = Path(DATA, "qm9", "qm9.npz")
        return read_qm9(source), source, cache


@needs_qm9
def test_real_set_has_the_published_molecules(real: tuple[Molecules, Path, Path]) -> None:
    molecules = real[0]
    assert len(molecules) == 133_885 - 3_054
    assert molecules.positions.shape == (130_831, 29, 3)
    assert int(molecules.counts.sum()) == 2_359_210
    assert (int(molecules.counts.min()), int(molecules.counts.max())) == (3, 29)
    # GDB-9 begins with methane, ammonia and water, and ends with its last.
    formulas = [sorted(row[row > 0].tolist(), reverse=True) for row in molecules.charges[:3]]
    assert formulas == [[6, 1, 1, 1, 1], [7, 1, 1, 1], [8, 1, 1]]
    assert molecules.index[[0, 1, 2, -1]].tolist() == [1, 2, 3, 133_885]
    bonds = (molecules.positions[0, 1:5] - molecules.positions[0, 0]).norm(dim=1)
    torch.testing.assert_close(bonds, torch.full((4,), 1.092), rtol=0, atol=1e-3)
    # At most nine heavy atoms.
    assert int((molecules.charges > 1).sum(1).max()) == 9


@needs_qm9
def test_real_properties_agree_with_each_other(real: tuple[Molecules, Path, Path]) -> None:
    molecules = real[0]
    column = dict(zip(molecules.names, molecules.targets.unbind(1), strict=True))
    # Published to four decimals of a hartree.
    rounding = 1.6e-4 * HARTREE
    assert float((column["gap"] - (column["lumo"] - column["homo"])).abs().max()) < rounding
    assert bool((column["h298"] > column["u298"]).all())
    assert bool((column["u298"] > column["u0"]).all())
    assert bool((column["g298"] < column["u0"]).all())
    # Every molecule is bound.
    assert float(molecules.labels("u0", torch.arange(130_831)).max()) < 0
    # Methane: -40.47893 hartree against a carbon and four hydrogens.
    methane = (-40.47893 + 37.846772 + 4 * 0.500273) * 27.2114
    assert float(molecules.labels("u0", torch.tensor([0]))) == pytest.approx(methane, rel=1e-6)


@needs_qm9
def test_real_set_starts_in_seconds_the_second_time(
    real: tuple[Molecules, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, source, cache = real
    monkeypatch.setenv("LIEAUGMENTER_CACHE", str(cache))
    started = time.perf_counter()
    again = read_qm9(source)
    # 0.1 s where nothing else runs.
    assert time.perf_counter() - started < 5
    assert same(again, first)


@needs_qm9
def test_real_task_has_the_published_split(
    real: tuple[Molecules, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    molecules, source, cache = real
    monkeypatch.setenv("LIEAUGMENTER_CACHE", str(cache))
    task = qm9("lumo", source, n_train=2000, n_validation=100, n_test=100)
    train, _, test = standard_split()
    assert torch.equal(task.x_train["positions"], molecules.positions[train[:2000]])
    lumo = molecules.targets[test[:100], molecules.names.index("lumo")]
    assert torch.equal(task.y_test.flatten(), lumo.float())
    assert task.name == "qm9-lumo"
    # Training targets are a fair sample.
    assert float(task.y_train.mean()) == pytest.approx(float(lumo.mean()), abs=0.4)


@needs_qm9
def test_padding_of_real_batches_is_a_twentieth(real: tuple[Molecules, Path, Path]) -> None:
    molecules = real[0]
    train = standard_split()[0]
    x = molecules.inputs(train)
    batches = molecule_batches(x, torch.zeros(len(train), 1), 125, seed=0, device=CPU)
    lengths, order = batches.plan(0)
    assert len(lengths) == 800
    assert set(lengths) == set(LENGTHS)
    there = float(x["mask"].sum())
    assert sum(lengths) * 125 / there < 1.06
    # What padding all to the largest would take.
    assert 29 * len(order) / there > 1.6
