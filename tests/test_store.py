"""Downloads: checked, continued where they were cut, and never half there under their name."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from lieaugmenter.data.files import DataError
from lieaugmenter.data.store import RemoteFile, fetch

CONTENT = np.random.default_rng(0).bytes(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Mirror(ThreadingHTTPServer):
    """A server of CONTENT that can cut connections, know no ranges, or send something else."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cut_after: list[int] = []
        """For each of the next connections: bytes before it is cut."""
        self.knows_ranges = True
        self.ranges: list[str | None] = []
        """What was asked for, a connection each."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.gz"


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        if self.path != "/file.gz":
            self.send_error(404)
            return
        start = 0
        if asked and self.server.knows_ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            total = len(self.server.content)
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.cut_after:
            body = body[: self.server.cut_after.pop(0)]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LIEAUGMENTER_DATA", raising=False)
    monkeypatch.setenv("LIEAUGMENTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def file_at(*mirrors: str) -> RemoteFile:
    return RemoteFile("set/file.gz", mirrors, DIGEST, len(CONTENT))


def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/file.gz"


def names(folder: Path) -> set[str]:
    """What lies in the cache, but for the lock."""
    return {path.name for path in folder.rglob("*") if path.is_file()} - {"file.gz.lock"}


def test_file_is_downloaded_once_and_then_taken_from_the_cache(
    mirror: Mirror, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fetch(file_at(mirror.address))
    assert path.read_bytes() == CONTENT
    assert path == cache / "set" / "file.gz"
    assert "downloading set/file.gz" in capsys.readouterr().err
    assert fetch(file_at(mirror.address)) == path
    assert len(mirror.ranges) == 1
    assert names(cache) == {"file.gz"}


def test_cache_is_the_users_unless_named(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIEAUGMENTER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fetch(file_at(mirror.address)).is_relative_to(tmp_path / "xdg" / "lieaugmenter")


def test_cut_connection_is_taken_up_where_it_ended(mirror: Mirror) -> None:
    mirror.cut_after = [100_000, 50_000]
    assert fetch(file_at(mirror.address)).read_bytes() == CONTENT
    assert mirror.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_next_call_continues_what_an_earlier_one_left(mirror: Mirror, cache: Path) -> None:
    mirror.cut_after = [100_000, 0]
    with pytest.raises(DataError, match=r"cut off after 0\.1 MB.*kept for the next try"):
        fetch(file_at(mirror.address))
    assert names(cache) == {"file.gz.part"}
    assert fetch(file_at(mirror.address)).read_bytes() == CONTENT
    assert mirror.ranges[-1] == "bytes=100000-"
    assert names(cache) == {"file.gz"}


def test_server_without_ranges_is_read_from_the_start(mirror: Mirror) -> None:
    mirror.knows_ranges = False
    mirror.cut_after = [100_000]
    assert fetch(file_at(mirror.address)).read_bytes() == CONTENT
    assert mirror.ranges == [None, "bytes=100000-"]


def test_another_mirror_continues_what_the_first_began(mirror: Mirror) -> None:
    with Mirror() as second:
        thread = threading.Thread(target=second.serve_forever, args=(0.01,))
        thread.start()
        mirror.cut_after = [100_000, 0]
        path = fetch(file_at(mirror.address, second.address))
        second.shutdown()
        thread.join()
    assert path.read_bytes() == CONTENT
    assert second.ranges == ["bytes=100000-"]


@pytest.mark.parametrize("wrong", [CONTENT[::-1], CONTENT + b"more", CONTENT[:-1], b""])
def test_wrong_content_never_gets_the_files_name(mirror: Mirror, cache: Path, wrong: bytes) -> None:
    mirror.content = wrong
    file = RemoteFile("set/file.gz", (mirror.address,), "0" * 64, len(CONTENT))
    with pytest.raises(DataError, match=r"wrong checksum|cut off"):
        fetch(file)
    assert "file.gz" not in names(cache)


def test_wrong_checksum_is_named_and_removed(mirror: Mirror, cache: Path) -> None:
    mirror.content = CONTENT[::-1]
    with pytest.raises(DataError, match=r"wrong checksum \(SHA-256\); what came was removed"):
        fetch(file_at(mirror.address))
    assert names(cache) == set()
    mirror.content = CONTENT
    assert fetch(file_at(mirror.address)).read_bytes() == CONTENT


def test_wrong_beginning_that_was_left_is_not_held_against_the_mirror(
    mirror: Mirror, cache: Path
) -> None:
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "file.gz.part").write_bytes(bytes(1000))
    assert fetch(file_at(mirror.address)).read_bytes() == CONTENT
    assert mirror.ranges == ["bytes=1000-", None]


def test_damaged_file_in_the_cache_is_replaced(mirror: Mirror) -> None:
    path = fetch(file_at(mirror.address))
    path.write_bytes(bytes(len(CONTENT)))
    assert fetch(file_at(mirror.address)).read_bytes() == CONTENT


def test_no_network_and_not_found_are_told_in_one_message(mirror: Mirror, cache: Path) -> None:
    gone = mirror.address.replace("file.gz", "gone.gz")
    with pytest.raises(DataError) as refused:
        fetch(file_at(nobody(), gone))
    message = str(refused.value)
    assert re.search(r"no connection \(Connection refused\)", message)
    assert f"{gone}: answered 404 Not Found" in message
    assert "set LIEAUGMENTER_DATA to that folder" in message
    assert "\n" not in message
    assert names(cache) == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written_is_named(mirror: Mirror, cache: Path) -> None:
    cache.mkdir(mode=0o500)
    with pytest.raises(DataError, match=r"cannot be written .*LIEAUGMENTER_CACHE"):
        fetch(file_at(mirror.address))


def test_cache_in_the_place_of_a_file_is_named(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setenv("LIEAUGMENTER_CACHE", str(tmp_path / "taken"))
    with pytest.raises(DataError, match="cannot be written"):
        fetch(file_at(mirror.address))


def test_local_folder_wins(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "set").mkdir(parents=True)
    (tmp_path / "mine" / "set" / "file.gz").write_bytes(b"my own")
    monkeypatch.setenv("LIEAUGMENTER_DATA", str(tmp_path / "mine"))
    assert fetch(file_at(mirror.address)).read_bytes() == b"my own"
    assert mirror.ranges == []


def test_local_folder_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIEAUGMENTER_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"LIEAUGMENTER_DATA=.*nowhere: no such folder"):
        fetch(file_at(nobody()))


def test_many_at_once_download_it_once(mirror: Mirror) -> None:
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(fetch(file_at(mirror.address))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    assert len(mirror.ranges) == 1
