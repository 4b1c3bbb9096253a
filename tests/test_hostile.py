"""Hostile and broken input: every reader gives a value or its one promised error, nothing else.

`make fuzz` asks the same of many more inputs, led by coverage.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from random import Random

import hostile_readers
import numpy as np
import pytest
import torch
from hostile_mutations import MARKUP, mutate
from hostile_readers import READERS, answer, command_line
from hypothesis import given, settings
from hypothesis import strategies as st

from lieaugmenter.analysis.models import ModelError, load_model
from lieaugmenter.data.amplitudes import amplitudes_from_file
from lieaugmenter.data.files import LARGEST_BYTES, DataError, read_data
from lieaugmenter.data.histology import read_class_folders
from lieaugmenter.data.images import read_idx
from lieaugmenter.export.manifest import Manifest
from lieaugmenter.lie.catalogue import named, so
from lieaugmenter.runs import RunError, WriteError, read_json, read_tensors, write_atomically

SOURCES = Path(__file__).parent.parent / "src"
# Inputs of each reader; those that draw pictures or train take seconds each.
INPUTS, SLOW_INPUTS = 200, 5
# What reading a bomb may take of memory, beyond what the libraries do.
MOST_MEMORY = 400 * 2**20


@pytest.mark.parametrize("name", READERS)
def test_good_files_are_read(name: str) -> None:
    reader = READERS[name]
    answers = [answer(reader, seed) for seed in reader.seeds()]
    assert "value" in answers


@pytest.mark.parametrize("name", READERS)
def test_every_reader_answers(name: str) -> None:
    reader = READERS[name]
    seeds = reader.seeds()

    @settings(
        max_examples=SLOW_INPUTS if reader.slow else INPUTS,
        deadline=None,  # each input has one of its own
        derandomize=True,
        database=None,
    )
    @given(good=st.sampled_from(seeds), seed=st.integers(0, 2**32 - 1))
    def changed(good: bytes, seed: int) -> None:
        answer(reader, mutate(good, reader.kind, Random(seed)))

    changed()


@settings(max_examples=INPUTS, deadline=None, derandomize=True, database=None)
@given(
    name=st.sampled_from([r.name for r in READERS.values() if not r.slow]),
    content=st.binary(max_size=400),
)
def test_arbitrary_bytes_are_answered_by_every_reader(name: str, content: bytes) -> None:
    answer(READERS[name], content)


def test_the_harness_sees_a_reader_that_raises_something_else() -> None:
    broken = hostile_readers.Reader("broken", "bytes", lambda: [b""], lambda *_: {}["missing"])
    with pytest.raises(hostile_readers.UnansweredError, match="KeyError"):
        answer(broken, b"")


def test_the_harness_sees_a_message_that_names_no_file() -> None:
    def silent(folder: Path, content: bytes) -> None:
        raise DataError("something is wrong")

    vague = hostile_readers.Reader("vague", "bytes", lambda: [b""], silent)
    with pytest.raises(hostile_readers.UnansweredError, match="which file"):
        answer(vague, b"")


def test_the_harness_sees_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_readers, "DEADLINE_S", 1)
    hangs = hostile_readers.Reader("hangs", "bytes", lambda: [b""], lambda *_: time.sleep(5))
    with pytest.raises(hostile_readers.UnansweredError, match="no answer"):
        answer(hangs, b"")


# -- no code is run --------------------------------------------------------------------------------


class RunsCode:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.marker),)


def test_the_payload_runs_where_it_is_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(RunsCode(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


def objects(marker: Path) -> np.ndarray:
    array = np.empty((12, 21), dtype=object)
    array[:] = RunsCode(marker)
    return array


def test_pickles_in_data_are_refused_and_run_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    np.save(tmp_path / "events.npy", objects(marker), allow_pickle=True)
    np.savez(tmp_path / "data.npz", X=objects(marker), y=np.zeros(12))
    with zipfile.ZipFile(tmp_path / "inner.npz", "w") as archive:
        archive.writestr("X.npy", pickle.dumps(RunsCode(marker)))
        archive.writestr("y.npy", pickle.dumps(RunsCode(marker)))
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name in ("a/x.png", "b/y.png", "data.pkl"):
            archive.writestr(name, pickle.dumps(RunsCode(marker)))
    with pytest.raises(DataError, match=r"not a readable \.npy"):
        amplitudes_from_file(tmp_path / "events.npy")
    with pytest.raises(DataError, match="pickled Python objects"):
        read_data(tmp_path / "data.npz")
    for name in ("inner.npz", "images.zip"):
        with pytest.raises(DataError):
            read_data(tmp_path / name)
    for suffix in (".csv", ".parquet", ".npz", ".tar", ".zip"):
        (tmp_path / f"plain{suffix}").write_bytes(pickle.dumps(RunsCode(marker)))
        with pytest.raises(DataError):
            read_data(tmp_path / f"plain{suffix}")
    assert not marker.exists()


def test_pickles_as_models_and_runs_are_refused_and_run_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    torch.save(RunsCode(marker), tmp_path / "model.pt")
    torch.save({"a": RunsCode(marker)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "model.pt2").write_bytes((tmp_path / "model.pt").read_bytes())
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(RunsCode(marker)))
    for name in ("model.pt", "old.pt", "model.pt2", "plain.pt"):
        with pytest.raises(ModelError):
            load_model(str(tmp_path / name))
        with pytest.raises(RunError):
            read_tensors(tmp_path / name)
    assert not marker.exists()


def test_a_picture_that_is_postscript_starts_no_program(tmp_path: Path) -> None:
    # Pillow knows files by their content, and has Ghostscript run this one.
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes(page)
    with pytest.raises(DataError, match="of no known kind"):
        read_class_folders(tmp_path)


_FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
_FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def unpickling(tree: ast.AST) -> list[str]:
    """Whatever in a module could unpickle or evaluate what it reads."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [name for name in names if name.split(".")[0] in _FORBIDDEN_MODULES]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called in _FORBIDDEN_CALLS or called.endswith(("read_pickle", "yaml.load")):
                found.append(called)
            if called == "torch.export.load":
                found.append(called)
            if called == "torch.load" and given.get("weights_only") != "True":
                found.append(called)
            # False is numpy's default, but a reader of the code should see it.
            if called in ("np.load", "numpy.load") and "allow_pickle" not in given:
                found.append(called)
            if given.get("allow_pickle", "False") != "False":
                found.append(f"{called}(allow_pickle=…)")
    return found


def test_nothing_is_unpickled_anywhere() -> None:
    files = sorted(SOURCES.rglob("*.py"))
    assert len(files) > 50
    found = {path.name: unpickling(ast.parse(path.read_text("utf-8"))) for path in files}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.lib.format.read_array(file, allow_pickle=allow)",
        "eval(text)",
        "yaml.load(text)",
    ],
)
def test_unpickling_would_be_seen(code: str) -> None:
    assert unpickling(ast.parse(code))


# -- no memory is taken ----------------------------------------------------------------------------


def bombs(folder: Path) -> list[tuple[str, Path]]:
    """Small files that ask for much, and which reader they are for."""
    import h5py
    import pyarrow as pa
    from PIL import Image
    from pyarrow import parquet

    header = "{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, 21), }}"
    claim = b"\x93NUMPY\x01\x00\x76\x00" + header.format(10**15).encode().ljust(117) + b"\n"
    (folder / "claim.npy").write_bytes(claim)
    with zipfile.ZipFile(folder / "claim.npz", "w") as archive:
        archive.writestr("X.npy", claim)
        archive.writestr("y.npy", claim)
    zeros = np.zeros(2**28, np.uint8)
    np.savez_compressed(folder / "zeros.npz", X=zeros.reshape(-1, 16), y=zeros[:9])
    with zipfile.ZipFile(folder / "zeros.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a/x.png", "b/y.png"):
            archive.writestr(name, zeros.tobytes())
    with h5py.File(folder / "unwritten.h5", "w") as file:
        file.create_dataset("zgg", (10**12, 21), "f8")
    repeated = pa.array(np.zeros(2**26))
    parquet.write_table(pa.table({"a": repeated, "y": repeated}), folder / "repeated.parquet")
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000), pa.array(["w" * 10**5]))
    parquet.write_table(pa.table({"a": np.ones(50_000), "y": words}), folder / "words.parquet")
    with (folder / "line.csv").open("w") as file:
        file.write("a," * 2**24)
    for name in ("a", "b"):
        (folder / "wide" / name).mkdir(parents=True)
    picture = folder / "wide" / "a" / "x.png"
    Image.new("1", (60_000, 60_000)).save(picture, compress_level=1)
    shutil.copy(picture, folder / "wide" / "b" / "x.png")
    (folder / "deep.json").write_text("[" * 10**6)
    return [
        ("read_data", folder / name)
        for name in ("claim.npz", "zeros.npz", "zeros.zip", "repeated.parquet", "words.parquet",
                     "line.csv", "wide")
    ] + [
        ("amplitudes_from_file", folder / "claim.npy"),
        ("amplitudes_from_file", folder / "unwritten.h5"),
        ("read_json", folder / "deep.json"),
    ]  # fmt: skip


_READ_BOMBS = """
import json, resource, sys, time
from lieaugmenter.data.amplitudes import amplitudes_from_file
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.runs import RunError, read_json
import h5py, pyarrow.parquet, PIL.Image
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
answers = {}
for reader, path in json.loads(sys.argv[1]):
    before, start = peak(), time.perf_counter()
    try:
        globals()[reader](path if reader != "read_json" else __import__("pathlib").Path(path))
        said = "value"
    except (DataError, RunError) as error:
        said = str(error)
    answers[path] = said, peak() - before, time.perf_counter() - start
print(json.dumps(answers))
"""


def test_bombs_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    asked = [(reader, str(path)) for reader, path in bombs(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", _READ_BOMBS, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=False,
        # A bomb that goes off ends its own process, not the machine.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30)),
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    for path, (said, memory, seconds) in answers.items():
        assert said != "value", path
        assert path in said
        assert memory < MOST_MEMORY, (path, memory)
        assert seconds < 10, path


def test_what_an_archive_says_it_unpacks_to_is_limited(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X.npy", b"x")
    content = (tmp_path / "d.npz").read_bytes()
    start = content.index(b"PK\x01\x02") + 24
    said = (LARGEST_BYTES // 10).to_bytes(4, "little")
    (tmp_path / "d.npz").write_bytes(content[:start] + said + content[start + 4 :])
    with pytest.raises(DataError, match="made to fill the memory"):
        read_data(tmp_path / "d.npz")


def test_well_packed_numbers_are_no_bomb(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", X=np.zeros((10**6, 2)), y=np.zeros(10**6))
    assert (tmp_path / "d.npz").stat().st_size * 400 < 24 * 10**6
    assert read_data(tmp_path / "d.npz").x.shape == (10**6, 2)


# -- what fuzzing found ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': ((3, 2), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 99999999999999999999), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, -2), }",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (6,), }",
        "{True: '<f8', 'fortran_order': False, 'shape': (3, 2), }",
    ],
)
def test_damaged_headers_of_arrays(tmp_path: Path, words: str) -> None:
    member = b"\x93NUMPY\x01\0\x76\0" + words.encode().ljust(117) + b"\n" + bytes(48)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X.npy", member)
        archive.writestr("y.npy", member)
    with pytest.raises(DataError, match=r"not a readable \.npz file"):
        read_data(tmp_path / "d.npz")
    (tmp_path / "d.npy").write_bytes(member)
    with pytest.raises(DataError, match=r"not a readable \.npy"):
        amplitudes_from_file(tmp_path / "d.npy")


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X", b"plain bytes")
        archive.writestr("y", b"plain bytes")
    with pytest.raises(DataError, match=r"not a readable \.npz file"):
        read_data(tmp_path / "d.npz")


def test_many_columns_take_no_time(tmp_path: Path) -> None:
    names = ",".join(f"x{i}" for i in range(90_000))
    (tmp_path / "d.csv").write_text(f"{names},y\n" + "1," * 90_000 + "2\n")
    start = time.perf_counter()
    assert read_data(tmp_path / "d.csv").x.shape == (1, 90_000)
    # Looking for each name among all took minutes.
    assert time.perf_counter() - start < 20
    (tmp_path / "e.csv").write_text("," * 100_001 + "y\n")
    with pytest.raises(DataError, match="at most 100000 are read"):
        read_data(tmp_path / "e.csv")


def test_whole_numbers_beyond_all_bounds_are_no_labels(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(f"a,y\n1,{'1' * 400}\n2,3\n")
    assert read_data(tmp_path / "d.csv").y.dtype.kind == "f"


def test_messages_stay_short_whatever_the_names(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(",".join(f"{i}{'n' * 9000}" for i in range(50)) + "\n")
    with pytest.raises(DataError, match="no column 'y'") as caught:
        read_data(tmp_path / "d.csv")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("axes", [bytes([200]) + b"\0\0\0\1" * 200, b"\2\0\0\0\0\xff\xff\xff\xff"])
def test_idx_files_with_impossible_axes(tmp_path: Path, axes: bytes) -> None:
    (tmp_path / "d").write_bytes(b"\0\0\x08" + axes)
    with pytest.raises(DataError, match="damaged IDX file"):
        read_idx(tmp_path / "d")


def pax_archive(path: Path, record: bytes) -> None:
    """A .tar of one picture whose extended header holds a record."""
    text = b"%d %s\n" % (len(record) + 4, record)
    extended = tarfile.TarInfo("pax")
    extended.type, extended.size = tarfile.XHDTYPE, len(text)
    entry = tarfile.TarInfo("a/x.png")
    path.write_bytes(
        extended.tobuf(tarfile.USTAR_FORMAT)
        + text.ljust(-(-len(text) // 512) * 512, b"\0")
        + entry.tobuf(tarfile.USTAR_FORMAT)
        + bytes(1024)
    )


@pytest.mark.parametrize("record", [b"size=-1024", b"size=-512", b"9" * 10**6])
def test_archives_that_older_pythons_never_finish(tmp_path: Path, record: bytes) -> None:
    pax_archive(tmp_path / "d.tar", record)
    start = time.perf_counter()
    with pytest.raises(DataError):
        read_data(tmp_path / "d.tar")
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("what", ["link", "external", "virtual"])
def test_event_files_do_not_lead_to_other_files(tmp_path: Path, what: str) -> None:
    import h5py

    (tmp_path / "secret").write_bytes(np.ones((12, 21)).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["zgg"] = np.ones((12, 21))
    with h5py.File(tmp_path / "d.h5", "w") as file:
        if what == "link":
            file["zgg"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "zgg")
        elif what == "external":
            place = [(str(tmp_path / "secret"), 0, 12 * 21 * 8)]
            file.create_dataset("zgg", (12, 21), "f8", external=place)
        else:
            layout = h5py.VirtualLayout((12, 21), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "zgg", (12, 21))
            file.create_virtual_dataset("zgg", layout)
    with pytest.raises(DataError, match=r"is a link|in other files"):
        amplitudes_from_file(tmp_path / "d.h5")


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '"\\ud800"', "{", "\x00"])
def test_json_that_python_chokes_on(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(RunError, match=r"f\.json is damaged"):
        read_json(tmp_path / "f.json")


def test_network_sizes_of_a_run_take_no_memory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for path in hostile_readers.finished_run().glob("*.*"):
        (run / path.name).write_bytes(path.read_bytes())
    config = json.loads((run / "config.json").read_text())
    config["parameters"]["hidden"] = [10**6, 10**6, 10**6]
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match="do not fit the network"):
        load_model(str(run))


@pytest.mark.parametrize("name", ["so(1000000)", "gl(101)", "so(1,99999999999999999999)"])
def test_groups_beyond_all_bounds_are_not_built(name: str) -> None:
    with pytest.raises(ValueError, match="at most 100 dimensions"):
        named(name)


def test_a_size_beyond_all_bounds_is_refused(tmp_path: Path) -> None:
    code, said = command_line(["doctor", str(tmp_path), "--size", "1000000000"])
    assert code == 2
    assert "from 1 to 4096 pixels" in " ".join(said.split())


def test_a_device_without_memory_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=np.random.default_rng(0).normal(size=(40, 2)), y=np.arange(40.0))
    words = ["discover", str(tmp_path / "d.npz"), "--device", "meta", "--generators", "1"]
    code, said = command_line([*words, "-o", str(tmp_path / "run")])
    assert code == 2
    assert "holds no numbers" in said


def test_no_device_is_replaced_by_a_file(tmp_path: Path) -> None:
    # As root, `lieaugmenter report run -o /dev/full` would have.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WriteError, match="never replaced"):
        write_atomically(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


# -- names in exports ------------------------------------------------------------------------------

HOSTILE_NAMES = [
    "<script>alert(1)</script>",
    MARKUP,
    "</script><svg onload=alert(1)>",
    "{{7*7}}{% raw %}",
    "‮evil\u200f",
    "n" * 5000,
    "\\input{/etc/passwd}$^_&%#~",
    "a|b\n# heading\n`code` [x](javascript:alert(1))",
    "=cmd|' /C calc'!A0",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_do_not_break_exports(tmp_path: Path, name: str) -> None:
    found = Manifest(
        so(2), None, [2.0], "vector", "invariant", [name, "y"], (2,), (1,), algebra=name,
        description=name,
    )  # fmt: skip
    table = found.export("latex")
    assert table.isascii()
    assert table.count("\\begin{") == table.count("\\end{")
    caption = next(line for line in table.splitlines() if line.startswith("\\caption"))
    # Each of LaTeX's own characters comes with a backslash, and no command is the name's.
    assert "\\input" not in caption
    bare = caption.removeprefix("\\caption{").removesuffix("}").replace("\\textbackslash{}", "")
    for special in "$&#_%":
        assert f"{special}" not in bare.replace(f"\\{special}", "")
    assert Manifest.from_json(json.loads(json.dumps(found.export("json")))).feature_names[0] == name
    assert len(found.export("sympy")) == 1
