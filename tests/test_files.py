"""Readers of users' files: what they accept, and one clear message for everything else."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lieaugmenter.data.checkup import Survey, examine
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.data.streaming import stream_data


@pytest.fixture
def table(tmp_path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(20, 3)), "y": rng.normal(size=20)}


def test_npz_gives_its_arrays(tmp_path: Path, table: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "d.npz", **table)
    read = read_data(tmp_path / "d.npz")
    assert np.array_equal(read.x, table["X"])
    assert np.array_equal(read.y, table["y"])
    assert read.feature_names == ["x1", "x2", "x3"]


def test_csv_and_parquet_give_the_same_table(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    lines = ["px,py,E", "1.5,2,3", "4,5e-1,6", "-7,8,9"]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    columns = {"px": [1.5, 4.0, -7.0], "py": [2.0, 0.5, 8.0], "E": [3, 6, 9]}
    parquet.write_table(pa.table(columns), tmp_path / "d.parquet")
    a, b = read_data(tmp_path / "d.csv", "E"), read_data(tmp_path / "d.parquet", "E")
    assert np.array_equal(a.x, b.x)
    assert np.array_equal(a.y, b.y)
    assert a.feature_names == b.feature_names == ["px", "py"]
    assert a.y.dtype.kind == "i"


def test_several_targets_and_words_as_labels(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b,kind\n1,2,cat\n4,5,dog\n")
    assert read_data(tmp_path / "d.csv", "kind").y.tolist() == ["cat", "dog"]
    (tmp_path / "e.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    assert read_data(tmp_path / "e.csv", "b,c").y.tolist() == [[2, 3], [5, 6]]


@pytest.mark.parametrize(("name", "mark"), [("d.csv", ";"), ("d.csv", "\t"), ("d.tsv", "\t")])
def test_separators_give_the_same_table(tmp_path: Path, name: str, mark: str) -> None:
    text = '# made by hand\n\n"a, m"|b|y\n1|2|3\n4|5|6\n'
    (tmp_path / name).write_text(text.replace("|", mark))
    table = read_data(tmp_path / name)
    assert table.feature_names == ["a, m", "b"]
    assert table.x.tolist() == [[1, 2], [4, 5]]


def test_a_tsv_is_separated_by_tabs_alone(tmp_path: Path) -> None:
    (tmp_path / "d.tsv").write_text("a,y\n1,2\n")
    with pytest.raises(DataError, match="seem to be separated by commas; write tabs"):
        read_data(tmp_path / "d.tsv")


def test_a_line_of_the_wrong_length_is_counted_as_an_editor_counts(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("# one\na,y\n\n1,2\n3\n")
    with pytest.raises(DataError, match="line 5 has 1 cells, the header has 2"):
        read_data(tmp_path / "d.csv")


def test_first_sample_of_a_table_without_header_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("0.5,1.5,2\n3,4,5\n")
    for target in (None, "2"):
        with pytest.raises(DataError, match="has to name the columns; this one holds numbers"):
            read_data(tmp_path / "d.csv", target)


def test_columns_that_pandas_has_numbered_are_named(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("0,1,2\n3,4,5\n")
    assert read_data(tmp_path / "d.csv", "2").feature_names == ["0", "1"]


def save_gas(folder: Path) -> list[Path]:
    """The same table in two formats, with an index without name and a column of words."""
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "gas.csv").write_text(",gas,T,V,P\n0,Ar,300,2,5\n1,He,350,3,6\n")
    columns = {"": [0, 1], "gas": ["Ar", "He"], "T": [300.0, 350.0], "V": [2, 3], "P": [5, 6]}
    parquet.write_table(pa.table(columns), folder / "gas.parquet")
    return [folder / "gas.csv", folder / "gas.parquet"]


def test_features_are_chosen_by_name_in_their_order(tmp_path: Path) -> None:
    for path in save_gas(tmp_path):
        table = read_data(path, "P", features=["V", "T"])
        assert table.feature_names == ["V", "T"]
        assert table.x.tolist() == [[2, 300], [3, 350]]


def test_columns_that_are_dropped_need_not_hold_numbers(tmp_path: Path) -> None:
    for path in save_gas(tmp_path):
        with pytest.raises(DataError, match="--drop 'gas'"):
            read_data(path, "P")
        table = read_data(path, "P", drop=["column 0", "gas"])
        assert table.feature_names == ["T", "V"]
        assert table.y.tolist() == [5, 6]


def test_streams_choose_the_same_columns(tmp_path: Path) -> None:
    path = save_gas(tmp_path)[1]
    for chosen in ({"features": ["V", "column 0"]}, {"drop": ["column 0", "gas"]}):
        stream, table = stream_data(path, "P", **chosen), read_data(path, "P", **chosen)
        assert stream.feature_names == table.feature_names
        assert next(stream.pieces())[0].tolist() == table.x.tolist()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"features": ["T", "volume"]}, "no column 'volume'; the file has column 0, gas, T, V, P"),
        ({"drop": ["name"]}, "no column 'name'"),
        ({"drop": ["gas", "gas"]}, "name every column once"),
        ({"features": ["T"], "drop": ["gas"]}, "not both"),
        ({"drop": ["column 0", "gas", "T", "V"]}, "no column is left"),
        ({"features": ["T", "P"]}, "'P' is the target and among the features"),
    ],
)
def test_columns_that_cannot_be_chosen_get_their_message(
    tmp_path: Path, chosen: dict[str, list[str]], message: str
) -> None:
    for path in save_gas(tmp_path):
        with pytest.raises(DataError, match=message):
            read_data(path, "P", **chosen)


def test_columns_without_a_name_are_called_by_their_place(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(",a,y,\n0,1,2,3\n1,4,5,6\n")
    table = read_data(tmp_path / "d.csv")
    assert table.feature_names == ["column 0", "a", "column 3"]
    (chosen,) = read_data(tmp_path / "d.csv", features=["column 3"]).x.T.tolist()
    assert chosen == [3, 6]
    (tmp_path / "e.csv").write_text(",column 0,y\n0,1,2\n")
    with pytest.raises(DataError, match="column 'column 0' appears more than once"):
        read_data(tmp_path / "e.csv")


def test_npy_read_whole_gives_what_its_stream_gives(
    tmp_path: Path, table: dict[str, np.ndarray]
) -> None:
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, table["X"].astype(np.float32))
    np.save(y, table["y"].astype(np.float32))
    whole, stream = read_data(x, str(y)), stream_data(x, str(y))
    inputs, targets = next(stream.pieces())
    assert whole.x.tolist() == inputs.tolist()
    assert whole.y.tolist() == targets.tolist()
    assert whole.feature_names == stream.feature_names
    assert read_data(x, None).y.shape == (20, 0)


def test_npy_that_cannot_be_read_whole_gets_its_message(tmp_path: Path) -> None:
    good, objects = tmp_path / "x.npy", np.empty(1, dtype=object)
    np.save(good, np.ones((10, 3)))
    objects[0] = RunsCode()
    np.save(tmp_path / "evil.npy", objects, allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes(good.read_bytes()[:-8])
    np.save(tmp_path / "short.npy", np.ones(9))
    np.save(tmp_path / "complex.npy", np.ones((10, 3), complex))

    def refused(name: str, target: str | None, message: str) -> None:
        with pytest.raises(DataError, match=message):
            read_data(tmp_path / name, target)

    refused("x.npy", "y", r"the targets must be another one: --target y\.npy")
    refused("x.npy", str(tmp_path / "none.npy"), r"none\.npy: no such file")
    refused("x.npy", str(tmp_path / "short.npy"), "X has 10 rows, .* has 9")
    refused("evil.npy", None, r"not a readable \.npy file \(an array of Python objects\)")
    refused("cut.npy", None, "an array of 240 bytes by its header, 232 are there")
    refused("short.npy", None, r"X has shape \(9,\)")
    refused("complex.npy", None, "X has dtype complex128")


def test_columns_without_names_are_not_chosen(tmp_path: Path, table: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "d.npz", **table)
    np.save(tmp_path / "x.npy", table["X"])
    np.save(tmp_path / "y.npy", table["y"])
    with pytest.raises(DataError, match="which only tables have"):
        read_data(tmp_path / "d.npz", drop=["x1"])
    with pytest.raises(DataError, match="which only tables have"):
        stream_data(tmp_path / "x.npy", str(tmp_path / "y.npy"), features=["x1"])


def test_byte_order_mark_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("﻿a,y\n1,2\n\n3,4\n".encode())
    assert read_data(tmp_path / "d.csv").x.tolist() == [[1.0], [3.0]]


class RunsCode:
    def __reduce__(self) -> tuple:
        return os.system, ("touch /tmp/lieaugmenter-was-here",)


def test_pickled_npz_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    marker = Path("/tmp/lieaugmenter-was-here")
    marker.unlink(missing_ok=True)
    objects = np.empty(1, dtype=object)
    objects[0] = RunsCode()
    np.savez(tmp_path / "evil.npz", X=objects, y=np.zeros(1))
    with pytest.raises(DataError, match="pickled Python objects, which are never loaded"):
        read_data(tmp_path / "evil.npz")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(RunsCode()))
    with pytest.raises(DataError, match=r"not a readable \.npz"):
        read_data(tmp_path / "plain.npz")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.npz", None, "no such file"),
        (
            "d.xlsx",
            b"",
            r"'.xlsx'; choose from .csv, .npy, .npz, .parquet, .tsv, and .* .tar, .zip or a folder",
        ),
        ("d.npz", b"PK\x03\x04 and then nothing", r"not a readable .npz"),
        ("d.parquet", b"PAR1 truncated", r"not a readable .parquet"),
        ("d.csv", b"", "no header line"),
        ("d.csv", b"a,y\n1,2\n3\n", "line 3 has 1 cells, the header has 2"),
        ("d.csv", b"a,y\n\n1,2\n\n\n3\n", "line 6 has 1 cells, the header has 2"),
        ("d.csv", b"a,y\n1,2\nhello,4\n", r"column 'a', row 2 holds 'hello', which is no number"),
        ("d.csv", b"a,a,y\n1,2,3\n", "column 'a' appears more than once"),
        ("d.csv", b"a,b\n1,2\n", "no column 'y'; the file has a, b. Name the target with --target"),
        ("d.csv", b"y\n1\n", "no column is left for X"),
        ("d.csv", b"a,y\n1,2.5\n3,\n", "the target 'y' is empty in row 2"),
        ("d.csv", b"a,y\n", "the file has no rows"),
        ("d.csv", b"a,y\n\xff\xfe,1\n", "not UTF-8 text"),
        ("d.csv", b'a,y\n"1,2\n', r"not a readable .csv"),
    ],
)
def test_each_bad_file_gets_its_message(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_data(tmp_path / name)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"A": np.zeros((3, 2)), "y": np.zeros(3)}, "no array 'X'; the file has A, y"),
        ({"X": np.zeros((3, 2))}, "no array 'y'"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(4)}, "X has 3 rows, y has 4"),
        ({"X": np.zeros(3), "y": np.zeros(3)}, r"X has shape \(3,\)"),
        ({"X": np.zeros((3, 2), complex), "y": np.zeros(3)}, "X has dtype complex128"),
        ({"X": np.array([["a"], ["b"]]), "y": np.zeros(2)}, "numbers are needed"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "no rows"),
        ({"X": np.zeros((3, 2)), "y": np.array(1.0)}, "y is a single number"),
    ],
)
def test_each_bad_npz_gets_its_message(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_data(tmp_path / "d.npz")


def test_absurd_size_is_refused_before_it_is_read(tmp_path: Path) -> None:
    import zipfile

    shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999, 9), }"
    header = b"\x93NUMPY\x01\x00v\x00" + shape.encode()
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X.npy", header.ljust(127) + b"\n")
        archive.writestr("y.npy", header.ljust(127) + b"\n")
    with pytest.raises(DataError):
        read_data(tmp_path / "d.npz")


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".npz", ".csv", ".parquet"]))
def test_arbitrary_bytes_never_give_anything_but_a_data_error(
    tmp_path: Path, content: bytes, suffix: str
) -> None:
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        read_data(path)


@settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(text=st.text(alphabet='aby01,;\t#."\n-e ', max_size=80))
def test_arbitrary_tables_never_give_anything_but_a_data_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fuzz.csv"
    path.write_text(text)
    with contextlib.suppress(DataError):
        read_data(path)


def test_checkup_tells_what_cannot_be_identified() -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(300, 4)) * 3
    notes = examine(np.concatenate([half, -half], axis=1), rng.normal(size=300))
    assert any("rank 4 of 8: 32 of 64 generator directions" in note.text for note in notes)
    assert not examine(half, rng.normal(size=300))


def test_checkup_sees_standardised_columns() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)) * [1, 3, 8]
    standardised = (x - x.mean(0)) / x.std(0)
    assert not examine(x, x[:, 0])
    assert "look standardised" in examine(standardised, x[:, 0])[0].text


def test_checkup_tells_how_many_rows_repeat_others() -> None:
    x = np.random.default_rng(0).normal(size=(300, 2)) * 5
    copied = np.concatenate([x, x[:100]])
    notes = examine(copied, copied[:, 0])
    assert [note.level for note in notes] == ["warning"]
    assert "25% of the rows repeat the input of another" in notes[0].text
    assert not examine(x, x[:, 0])


def test_copies_are_counted_among_more_rows_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lieaugmenter.data.checkup._MOST_INPUTS", 500)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 2)) * 5
    survey = Survey()
    for rows in np.array_split(rng.permutation(np.repeat(np.arange(5000), 4)), 40):
        survey.add(x[rows], x[rows, 0])
    assert any("75% of the rows" in note.text for note in survey.notes())


def test_checkup_names_columns_with_non_finite_values() -> None:
    x = np.ones((300, 3))
    x[118, 2] = np.nan
    notes = examine(x, np.arange(300.0), ["px", "py", "pz"])
    assert notes[0].level == "error"
    assert 'in column 2 ("pz"); first row 118' in notes[0].text


def test_checkup_refuses_what_single_precision_cannot_hold() -> None:
    x = np.random.default_rng(0).normal(size=(300, 2))
    x[7, 1] = 1e39
    for note in (examine(x, x[:, 0])[0], examine(x[:, :1], x[:, 1])[0]):
        assert note.level == "error"
        assert "1 non-finite value (NaN, inf or beyond 3.4e38)" in note.text
        assert "first row 7" in note.text


def test_checkup_asks_whether_float_labels_are_classes() -> None:
    y = np.arange(300) % 3.0
    notes = examine(np.random.default_rng(0).normal(size=(300, 2)) * 5, y)
    assert any("classifier or regressor?" in note.text for note in notes)


def test_columns_in_different_units_are_no_lack_of_rank() -> None:
    x = np.random.default_rng(0).normal(size=(300, 3))
    x *= np.array([1e-9, 1.0, 1e6]) / x.std(0)
    notes = examine(x, x[:, 1], ["a", "b", "c"])
    assert not any("rank" in note.text for note in notes)
    (far,) = [note for note in notes if "a about 1e-09, c about 1e+06" in note.text]
    assert far.level == "warning"


def test_unlike_columns_are_told_which_way_to_scale() -> None:
    rng = np.random.default_rng(0)
    gas = np.column_stack([rng.uniform(1, 3, 300), rng.uniform(200, 500, 300)])
    (note,) = examine(gas, gas[:, 0] * gas[:, 1], ["n", "T"])
    assert note.level == "info"
    assert "n about 0.6, T about 82" in note.text
    assert "dividing each by its spread" in note.text
    assert "must keep one common unit" in note.text
    assert not examine(gas / gas.std(0), gas[:, 0] * gas[:, 1], ["n", "T"])


def test_a_constant_column_has_no_spread_to_compare() -> None:
    x = np.column_stack([np.random.default_rng(0).normal(size=(300, 2)) * 3, np.full(300, 0.1)])
    assert not any("spread" in note.text for note in examine(x, x[:, 0]))


def test_a_column_that_counts_the_rows_is_pointed_out() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.arange(300), rng.normal(size=(300, 2))])
    notes = [note.text for note in examine(x, rng.normal(size=300), ["", "a", "b"])]
    assert any("column 0 counts the rows, as an index does" in text for text in notes)
    x[7, 0] = 0
    notes = [note.text for note in examine(x, rng.normal(size=300), ["", "a", "b"])]
    assert not any("counts the rows" in text for text in notes)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ("a b y\n1 2 3\n4 5 6\n", "seem to be separated by spaces; write commas, semicolons or"),
        ("a|b|y\n1|2|3\n4|5|6\n", "seem to be separated by '|'"),
        ("a;y\n1,5;2\n", "column 'a', row 1 holds '1,5', which is no number. Write decimals with"),
        ("a,gas,y\n1,Ar,2\n", "'Ar', which is no number. Encode words as numbers, or leave the"),
        ("1.5,2.5,3\n4,5,6\n", "first line has to name the columns"),
        ("# a,y\n1.5,2.5\n4,5\n", "this one holds numbers (1.5, 2.5). Write a line of names"),
        ("a,y\n1,2\n,3\n", "column 'a', row 2 is empty. Drop the row or fill it in"),
    ],
)
def test_tables_that_cannot_be_read_come_with_advice(
    content: str, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "d.csv").write_text(content)
    with pytest.raises(DataError) as error:
        read_data(tmp_path / "d.csv", target="y")
    assert advice in str(error.value)
