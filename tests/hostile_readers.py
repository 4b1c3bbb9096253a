"""Every reader of the project, with good files to start from and the one error that it promises."""

from __future__ import annotations

import atexit
import gzip
import io
import json
import os
import shutil
import signal
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from lieaugmenter import LieAugmenter
from lieaugmenter.actions import VectorAction
from lieaugmenter.analysis.groups import generators_of
from lieaugmenter.analysis.models import ModelError, load_model
from lieaugmenter.cli import main
from lieaugmenter.data.amplitudes import amplitudes_from_file
from lieaugmenter.data.dynamics import two_body_from_file
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.data.histology import read_class_folders, stand_in
from lieaugmenter.data.images import read_idx
from lieaugmenter.data.molecules import read_molecules
from lieaugmenter.data.phase_space import scatter
from lieaugmenter.data.qm9_files import COLUMNS, TABLES, read_source
from lieaugmenter.experiments.catalogue import find_experiment
from lieaugmenter.experiments.results import collect
from lieaugmenter.export import load_manifest, load_predictor, manifest_of_run, save_manifest
from lieaugmenter.export.manifest import Manifest
from lieaugmenter.learning.checkpoint import load_checkpoint, save_checkpoint
from lieaugmenter.learning.weights import load_weights, save_weights
from lieaugmenter.lie.catalogue import se, so
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import render
from lieaugmenter.report.reproduction import reproduction
from lieaugmenter.report.sensitivity import sensitivity
from lieaugmenter.runs import RunError, RunFolder, read_json, read_tensors

# Longer is a hang. Inputs are small: even on a busy machine good ones take a hundredth of it.
DEADLINE_S = 20
# A message is for people: a line, not a page.
LONGEST_MESSAGE = 2000
EXIT_CODES = (0, 1, 2, 3)


class UnansweredError(AssertionError):
    """An input that got neither a value nor the promised error."""


class _HangError(BaseException):
    """Not an Exception, so that no reader mistakes it for a damaged file."""


@dataclass(frozen=True)
class Reader:
    """One door through which files come in.

    Attributes
    ----------
    name
        In tests and records.
    kind
        Of `hostile_mutations.KINDS`: how its files are changed.
    seeds
        Good files.
    read
        Puts the content where it belongs in an empty folder, and reads it.
    errors
        What it may raise instead of giving a value. All of them are sentences for users.
    slow
        Whether an input takes more than some milliseconds.
    """

    name: str
    kind: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], object]
    errors: tuple[type[Exception], ...] = (DataError,)
    slow: bool = False


def answer(reader: Reader, content: bytes) -> str:
    """``"value"``, or the name of the promised error.

    Raises
    ------
    UnansweredError
        For any other error, a warning, a message that is no sentence, or no answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="hostile-") as name, _deadline():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                reader.read(Path(name), content)
        except reader.errors as error:
            # Exactly the promised one: a ValueError of some library is none of ours.
            if type(error) not in reader.errors:
                raise UnansweredError(f"{reader.name}: {type(error)}: {error}") from error
            _check_message(reader, str(error), name)
            return type(error).__name__
        except _HangError:
            raise UnansweredError(f"{reader.name}: no answer in {DEADLINE_S} s") from None
        except Exception as error:
            raise UnansweredError(f"{reader.name}: {type(error).__name__}: {error}") from error
    return "value"


def _check_message(reader: Reader, message: str, folder: str) -> None:
    if not message.strip() or len(message) > LONGEST_MESSAGE or "Traceback" in message:
        raise UnansweredError(f"{reader.name}: no sentence: {message[:3000]!r}")
    if folder not in message:
        raise UnansweredError(f"{reader.name}: does not say which file: {message!r}")


@contextmanager
def _deadline() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- data ------------------------------------------------------------------------------------------


def _file(name: str, read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    """A reader of one file of that name."""

    def reader(folder: Path, content: bytes) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return reader


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape)


def _npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _tables() -> list[bytes]:
    return [
        b"px,py,y\n1.5,2,3\n4,5e-1,6\n-7,8,9\n",
        b"a,b,y\n1,2,cat\n4,5,dog\n",
        '\ufeff"x, m",θ,y\n1,2,0.5\n\n3,4,1e3\n'.encode(),
        b"# made by hand\na;b;y\n1;2;3\n4;5e-1;6\n",
    ]


def _tab_tables() -> list[bytes]:
    return [b"a\tb, m\ty\n1\t2\t3\n4\t5e-1\t6\n"]


def _read_without_b(path: Path) -> object:
    return read_data(path, drop=["b"])


def _parquets() -> list[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    columns = (
        {"a": [1.5, 2.5], "b": [1, 2], "y": [3.0, 4.0]},
        {"a": [1.0, None], "y": ["cat", "dog"]},
        {"a": [True, False], "y": [[1, 2], [3]]},
    )
    found = []
    for case in columns:
        for options in ({}, {"compression": "gzip", "use_dictionary": False}):
            out = io.BytesIO()
            parquet.write_table(pa.table(case), out, **options)
            found.append(out.getvalue())
    return found


def _arrays() -> list[bytes]:
    return [
        _npz(X=_random(3, 2), y=_random(3)),
        _npz(X=np.arange(24).reshape(2, 3, 4), y=np.array(["a", "b"])),
    ]


def _orbits() -> list[bytes]:
    return [_npz(coords=_random(2, 4, 8), test_coords=_random(2, 4, 8))]


def _rows(n: int, gluons: int) -> np.ndarray:
    """Events on their mass shells, with any squared amplitudes."""
    momenta = scatter(n, gluons, np.random.default_rng(n))
    return np.concatenate([momenta.reshape(n, -1), 0.1 + _random(n, 1)], axis=1)


def _events() -> list[bytes]:
    return [_npy(_rows(12, 1)), _npy(_rows(10, 2).astype(np.float32))]


def _hdf5_events() -> list[bytes]:
    import h5py

    found = []
    for options in ({}, {"chunks": (4, 21), "compression": "gzip"}):
        out = io.BytesIO()
        with h5py.File(out, "w") as file:
            file.create_dataset("zgg", data=_rows(12, 2), **options)
            file.create_dataset("zg", data=_rows(12, 1))
        found.append(out.getvalue())
    return found


def _read_events(path: Path) -> object:
    return amplitudes_from_file(path, gluons=2)


def _idx() -> list[bytes]:
    plain = b"\0\0\x08\x03" + np.array([2, 3, 4], ">u4").tobytes() + bytes(range(24))
    return [plain, gzip.compress(plain, mtime=0), b"\0\0\x08\x01\0\0\0\x02\x07\x08"]


def _pictures(*forms: str) -> list[bytes]:
    from PIL import Image

    found = []
    for form in forms:
        for pixels in ((255 * _random(6, 5)).astype(np.uint8), np.zeros((6, 5, 3), np.uint8)):
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, form)
            found.append(out.getvalue())
    return found


def _read_picture(suffix: str) -> Callable[[Path, bytes], object]:
    def read(folder: Path, content: bytes) -> object:
        for name in ("cat", "dog"):
            (folder / name).mkdir()
        (folder / "cat" / f"a{suffix}").write_bytes(content)
        (folder / "dog" / f"b{suffix}").write_bytes(content)
        return read_class_folders(folder, size=4)

    return read


def _class_folders() -> dict[str, bytes]:
    grey, colour = _pictures("PNG")
    return {"set/cat/a.png": grey, "set/dog/b.png": grey, "set/dog/about.txt": colour}


def _picture_zips() -> list[bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in _class_folders().items():
            archive.writestr(name, content)
    return [out.getvalue()]


def _picture_tars() -> list[bytes]:
    found = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            for name, content in _class_folders().items():
                # Where the format has headers for long names, with one.
                long = form != tarfile.USTAR_FORMAT
                entry = tarfile.TarInfo(name.replace("set", "ς" * 120) if long else name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        found.append(out.getvalue())
    return found


def _tissue() -> list[bytes]:
    tiles = [_pictures("JPEG")[1]] * 8
    return [
        _npz(
            jpeg=np.frombuffer(b"".join(tiles), np.uint8),
            offset=np.cumsum([0, *map(len, tiles)]),
            label=np.arange(8) % 2,
            is_test=np.arange(8) > 5,
            mirror_duplicate=np.zeros(8, bool),
            class_names=np.array(["a", "b"]),
        )
    ]


def _molecule_arrays() -> list[bytes]:
    charges = np.array([8, 1, 1, 6, 1, 1, 1, 1], np.uint8)
    columns = {name: _random(2) for name, _ in COLUMNS.values()}
    return [
        _npz(z=charges, pos=_random(8, 3), n_atoms=np.array([3, 5]), index=np.arange(2), **columns)
    ]


def _molecule_table() -> list[bytes]:
    names = ["Index", "N_atoms", "Elements", "XYZ_Ang", *(name for _, name in COLUMNS.values())]
    row = ["1", "2", "\"['H', 'F']\"", '"[[0, 0, 0], [0, 0, 0.9]]"', *["0.5"] * len(COLUMNS)]
    return ["\n".join([",".join(names), ",".join(row), ",".join(row), ""]).encode()]


def _read_molecule_table(folder: Path, content: bytes) -> object:
    for name in TABLES:
        (folder / name).write_bytes(_molecule_table()[0])
    (folder / TABLES[1]).write_bytes(content)
    return read_source(folder)


def _read_kept_molecules(folder: Path, content: bytes) -> object:
    """What an earlier start left in the cache, changed since."""
    source = folder / "qm9.npz"
    source.write_bytes(_molecule_arrays()[0])
    before = os.environ.get("LIEAUGMENTER_CACHE")
    os.environ["LIEAUGMENTER_CACHE"] = str(folder)
    try:
        read_molecules(source)
        (kept,) = (folder / "qm9").glob("*.safetensors")
        kept.write_bytes(content)
        return read_molecules(source)
    finally:
        if before is None:
            del os.environ["LIEAUGMENTER_CACHE"]
        else:
            os.environ["LIEAUGMENTER_CACHE"] = before


@cache
def _kept_molecules() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        _read_kept_molecules(Path(name), b"")
        (kept,) = (Path(name) / "qm9").glob("*.safetensors")
        return kept.read_bytes()


# -- runs, models and results ----------------------------------------------------------------------


@cache
def finished_run() -> Path:
    """A short run of the command line, in a folder that lives as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    x = np.random.default_rng(0).normal(size=(80, 2))
    np.savez(folder / "data.npz", X=x, y=np.linalg.norm(x, axis=1))
    words = ["discover", str(folder / "data.npz"), "--generators", "1", "--epochs", "1"]
    code, said = command_line([*words, "--views", "2", "-o", str(folder / "run")])
    if code:
        raise AssertionError(said)
    return folder / "run"


def command_line(words: list[str]) -> tuple[int, str]:
    """Exit code, and what was said on standard error."""
    out, said = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(said):
        try:
            main(words)
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    raise AssertionError("main() does not return")


def _with_run(name: str, read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    """A run folder in which one file is hostile."""

    def reader(folder: Path, content: bytes) -> object:
        run = folder / "run"
        run.mkdir()
        for path in finished_run().iterdir():
            if path.name != name:
                (run / path.name).symlink_to(path)
        (run / name).write_bytes(content)
        return read(run)

    return reader


def _everything_of(run: Path) -> object:
    """All that the command line reads of a finished run, without drawing."""
    folder = RunFolder.open(run)
    return Findings.load(folder), manifest_of_run(folder), load_model(str(run)), load_predictor(run)


def _predict_by(run: Path) -> object:
    return load_predictor(run).module.predict(torch.ones(2, 2))


def _report_of(run: Path) -> object:
    return render(Findings.load(RunFolder.open(run)))


def _of_run(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(finished_run() / name).read_bytes()]


def _network() -> tuple[torch.nn.Module, LieAugmenter, torch.optim.Optimizer]:
    model = torch.nn.Linear(2, 1)
    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=2)
    optimizer = torch.optim.Adam([*model.parameters(), *augmenter.parameters()])
    augmenter.loss(model, torch.ones(4, 2), torch.ones(4, 1)).backward()
    optimizer.step()
    return model, augmenter, optimizer


@cache
def _checkpoints() -> list[bytes]:
    model, augmenter, optimizer = _network()
    with tempfile.TemporaryDirectory() as name:
        run = RunFolder(name)
        save_checkpoint(
            run,
            model=model,
            augmenter=augmenter,
            optimizer=optimizer,
            progress={"epoch": 1, "records": []},
            settings={"epochs": 2},
        )
        return [run.checkpoint_path.read_bytes()]


def _continue(folder: Path, content: bytes) -> object:
    run = RunFolder(folder)
    run.checkpoint_path.parent.mkdir()
    run.checkpoint_path.write_bytes(content)
    model, augmenter, optimizer = _network()
    state = torch.get_rng_state()
    try:
        return load_checkpoint(
            run,
            model=model,
            augmenter=augmenter,
            optimizer=optimizer,
            settings={"epochs": 2},
        )
    finally:
        torch.set_rng_state(state)


@cache
def _weights() -> list[bytes]:
    model, augmenter, _ = _network()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "weights.safetensors"
        save_weights(path, model, augmenter, about={"epoch": 1})
        return [path.read_bytes()]


def _load_weights(path: Path) -> object:
    model, augmenter, _ = _network()
    return load_weights(path, model, augmenter)


@cache
def _manifest() -> dict[str, bytes]:
    found = Manifest(
        so(2), so(2), [2.0], "vector", "invariant", ["x", "y"], (2,), (1,), algebra="so(2)"
    )
    with tempfile.TemporaryDirectory() as name:
        save_manifest(found, Path(name) / "found.json")
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def _with_manifest(name: str) -> Callable[[Path, bytes], object]:
    def read(folder: Path, content: bytes) -> object:
        for other, good in _manifest().items():
            (folder / other).write_bytes(good)
        (folder / name).write_bytes(content)
        manifest = load_manifest(folder / "found.json")
        return manifest.export("latex"), manifest.export("json")

    return read


def _torchscript() -> list[bytes]:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 1), torch.ones(1, 2)), out)
    return [out.getvalue()]


def _results(name: str = "no-symmetry") -> list[bytes]:
    kept = json.loads((Path(__file__).parent.parent / "results" / f"{name}.json").read_text())
    return [json.dumps(kept | {"results": kept["results"][::8]}).encode()]


def _molecule_results() -> list[bytes]:
    kept = json.loads(_results()[0])
    measured = {
        "mae": 20.0, "test-curve": [30.0, 20.0], "curve-seconds": [1.0, 2.0],
        "peak-gb": [1.0, 1.0], "generators": se(3).tolist(), "span-cosine": 0.9,
    }  # fmt: skip
    results = [{"method": name, "seed": 0, **measured} for name in ("trivial", "lieaugmenter")]
    return [json.dumps({**kept, "results": results}).encode()]


def _study() -> list[bytes]:
    path = Path(__file__).parent.parent / "results" / "sensitivity" / "width.json"
    kept = json.loads(path.read_text())
    return [json.dumps(kept | {"results": kept["results"][:4]}).encode()]


def _read_study(folder: Path, content: bytes) -> object:
    (folder / "sensitivity").mkdir()
    (folder / "sensitivity" / "width.json").write_bytes(content)
    return sensitivity(folder)


def _read_collected(folder: Path, content: bytes) -> object:
    experiment = find_experiment("no-symmetry")
    run = folder / experiment.methods[0].name / "seed-0"
    run.mkdir(parents=True)
    for name in ("environment.json", "basis.safetensors"):
        shutil.copy(finished_run() / name, run / name)
    (run / "config.json").write_text(json.dumps(json.loads(_results()[0])["settings"]))
    (run / "result.json").write_bytes(content)
    return collect(experiment, folder)


def _result() -> list[bytes]:
    finished_run()  # trained here, where libraries may warn
    kept = json.loads(_results()[0])
    return [json.dumps(result).encode() for result in kept["results"][:2]]


def _commands() -> list[bytes]:
    """Command lines as JSON lists; the words in capitals stand for good files."""
    lines = (
        "discover DATA --target y --action vector --output invariant --task auto --generators 1 "
        "--blocks 2 --epochs 1 --views 2 --range 1.0 --seeds 1 --seed 0 --device cpu -o OUT",
        "doctor DATA --target y --size 8 --json",
        "doctor TABLE --target y --features b,a --drop id",
        "check RUN TABLE --group so(2) --axes a b",
        "check MODEL DATA --group so(2) --axes 0 1 --target y --action vector --worst 3 --seed 0",
        "check RUN DATA --group RUN --output invariant --fail-above 0.5 --json",
        "report RUN -o OUT --json",
        "export RUN --to latex --learned -o OUT",
        "export RUN --to json --json",
        "resume RUN --strict",
        "reproduce two-body --seeds 1 --methods emlp --device nope --quick -o OUT --results OUT",
        "demo two-body --seed -1 --epochs 1 -o OUT",
    )
    return [json.dumps(line.split()).encode() for line in lines]


def _command(folder: Path, content: bytes) -> object:
    """Run a command line; bad input must end in one of the exit codes, never in an exception."""
    try:
        words = json.loads(content)
    except (ValueError, RecursionError):
        words = content.decode(errors="surrogateescape").split("\0")
    words = [str(word) for word in words] if isinstance(words, list) else [str(words)]
    x = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(folder / "data.npz", X=x, y=np.linalg.norm(x, axis=1))
    (folder / "model.pt").write_bytes(_torchscript()[0])
    (folder / "table.csv").write_text("id;a;b;y\n1;2;3;4\n5;6;7;8\n")
    places = {"DATA": "data.npz", "TABLE": "table.csv", "MODEL": "model.pt", "OUT": "out"}
    known = {word: str(folder / name) for word, name in places.items()}
    known["RUN"] = str(finished_run())
    code, said = command_line(_harmless([known.get(word, word) for word in words]))
    if code not in EXIT_CODES or "Traceback" in said:
        raise AssertionError(f"exit code {code}: {said}")
    return code


def _harmless(words: list[str]) -> list[str]:
    """Without what is allowed but must not be tried here: years of training, files elsewhere."""
    kept: list[str] = []
    for word in words:
        before = kept[-1] if kept else ""
        long = before in ("--epochs", "--seeds") and len(word) > 3
        away = ".." in word or (word.startswith("/") and not word.startswith(tempfile.gettempdir()))
        kept.append("1" if long or away else word)
    # A demo that is asked for the usual length takes half a minute.
    return kept if "demo" not in kept or "--epochs" in kept else []


_RUN_FILES = {
    "config.json": "json",
    "environment.json": "json",
    "metrics.jsonl": "jsonl",
    "verdict.json": "json",
    "basis.safetensors": "tensors",
    "elements.safetensors": "tensors",
    "network.safetensors": "tensors",
    "samples.safetensors": "tensors",
    "sweep.safetensors": "tensors",
}

READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("csv", "table", _tables, _file("d.csv", read_data)),
        Reader("csv-inputs", "table", _tables, _file("d.csv", lambda p: read_data(p, None))),
        Reader("csv-columns", "table", _tables, _file("d.csv", _read_without_b)),
        Reader("tsv", "table", _tab_tables, _file("d.tsv", read_data)),
        Reader("parquet", "bytes", _parquets, _file("d.parquet", read_data)),
        Reader("npz", "zip", _arrays, _file("d.npz", read_data)),
        Reader("npz-orbits", "zip", _orbits, _file("d.npz", two_body_from_file)),
        Reader("npz-tissue", "zip", _tissue, _file("d.npz", stand_in)),
        Reader("npz-molecules", "zip", _molecule_arrays, _file("d.npz", read_source)),
        Reader("npy", "array", _events, _file("d.npy", lambda p: read_data(p, None))),
        Reader("npy-events", "array", _events, _file("d.npy", _read_events)),
        Reader("hdf5-events", "bytes", _hdf5_events, _file("d.h5", _read_events)),
        Reader("idx", "bytes", _idx, _file("images-idx3-ubyte", read_idx)),
        Reader("png", "png", lambda: _pictures("PNG"), _read_picture(".png")),
        Reader("jpeg", "bytes", lambda: _pictures("JPEG"), _read_picture(".jpg")),
        Reader("bmp", "bytes", lambda: _pictures("BMP"), _read_picture(".bmp")),
        Reader("tiff", "bytes", lambda: _pictures("TIFF"), _read_picture(".tif")),
        Reader("image-zip", "zip", _picture_zips, _file("d.zip", read_data)),
        Reader("image-tar", "tar", _picture_tars, _file("d.tar", read_data)),
        Reader("qm9-tables", "table", _molecule_table, _read_molecule_table),
        Reader("qm9-kept", "tensors", lambda: [_kept_molecules()], _read_kept_molecules),
        Reader("json", "json", _of_run("config.json"), _file("f.json", read_json), (RunError,)),
        Reader(
            "tensors",
            "tensors",
            _of_run("basis.safetensors"),
            _file("f.safetensors", read_tensors),
            (RunError,),
        ),
        *(
            Reader(f"run-{name}", kind, _of_run(name), _with_run(name, _everything_of), (RunError,))
            for name, kind in _RUN_FILES.items()
        ),
        Reader(
            "run-predictor",
            "tensors",
            _of_run("network.safetensors"),
            _with_run("network.safetensors", _predict_by),
            (RunError,),
        ),
        *(
            Reader(
                f"report-{name}",
                kind,
                _of_run(name),
                _with_run(name, _report_of),
                (RunError,),
                True,
            )
            for name, kind in _RUN_FILES.items()
            if not name.startswith(("network", "elements"))
        ),
        Reader("checkpoint", "tensors", _checkpoints, _continue, (RunError,)),
        Reader("weights", "tensors", _weights, _file("w.safetensors", _load_weights), (RunError,)),
        Reader(
            "manifest",
            "json",
            lambda: [_manifest()["found.json"]],
            _with_manifest("found.json"),
            (RunError, ValueError),
        ),
        Reader(
            "manifest-tensors",
            "tensors",
            lambda: [_manifest()["found.safetensors"]],
            _with_manifest("found.safetensors"),
            (RunError, ValueError),
        ),
        Reader(
            "group",
            "json",
            lambda: [_manifest()["found.json"]],
            _file("group.json", lambda p: generators_of(p, VectorAction(2))),
            (RunError, ValueError),
        ),
        Reader(
            "torchscript",
            "zip",
            _torchscript,
            _file("model.pt", lambda p: load_model(str(p))),
            (ModelError,),
        ),
        Reader(
            "results",
            "json",
            _results,
            _file("no-symmetry.json", lambda p: reproduction(p.parent)),
            (RunError,),
        ),
        Reader(
            "results-molecules",
            "json",
            _molecule_results,
            _file("qm9-homo.json", lambda p: reproduction(p.parent)),
            (RunError,),
        ),
        Reader("results-study", "json", _study, _read_study, (RunError,)),
        Reader("run-result.json", "json", _result, _read_collected, (RunError,)),
        Reader("command-line", "json", _commands, _command, (), True),
    )
}
