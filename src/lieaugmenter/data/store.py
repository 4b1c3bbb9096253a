"""The one door to downloaded data sets: a local folder, a cache, or a download that is checked.

The folder named by ``LIEAUGMENTER_DATA`` wins, then the cache (``LIEAUGMENTER_CACHE``, or
``lieaugmenter/data`` in the user's cache). Only what has the pinned SHA-256 gets its final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from lieaugmenter.data.files import DataError
from lieaugmenter.learning.progress import TextProgress
from lieaugmenter.runs import put_in_place

try:
    import fcntl
except ImportError:  # not on Windows, where two downloads at once are not kept apart
    fcntl = None

FOLDER_VARIABLE = "LIEAUGMENTER_DATA"
CACHE_VARIABLE = "LIEAUGMENTER_CACHE"
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18
# A connection that is cut is taken up again this often before the next mirror is tried.
_RESUMES = 4


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be downloaded.

    Attributes
    ----------
    path
        Where it lies in a data folder, for example ``"mnist/train-labels-idx1-ubyte.gz"``.
    mirrors
        Addresses of the same bytes, tried in order.
    sha256
        Digest of the file, in hexadecimal.
    size
        In bytes.
    """

    path: str
    mirrors: tuple[str, ...]
    sha256: str
    size: int


class _MirrorError(Exception):
    """Why one mirror did not give the file; the next one may."""


def local_path(path: str) -> Path | None:
    """The path inside the folder named by ``LIEAUGMENTER_DATA``, if that is set and has it.

    Raises
    ------
    DataError
        If the variable names something that is no folder.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"{FOLDER_VARIABLE}={named}: no such folder")
    found = folder / path
    return found if found.exists() else None


def fetch(file: RemoteFile) -> Path:
    """The path of a file on this machine, downloaded if it is not here yet.

    Files of the local folder are taken as they are; what is in the cache or was downloaded has
    the pinned digest. A download that is cut is continued by the next call.

    Raises
    ------
    DataError
        With one message of what each mirror answered, or why the cache cannot be written.
    """
    local = local_path(file.path)
    if local is not None:
        return local
    cached = cache_folder() / file.path
    if _is_intact(cached, file):
        return cached
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with _alone(cached.with_name(f"{cached.name}.lock")):
            # Another process may have brought it while this one waited.
            if not _is_intact(cached, file):
                _download(file, cached)
    except OSError as error:
        raise DataError(
            f"{cached.parent}: cannot be written ({error.strerror or error}). Set "
            f"{CACHE_VARIABLE} to a folder with room for {_megabytes(file.size)}"
        ) from None
    return cached


def cache_folder() -> Path:
    """Where downloads are kept; the folder need not exist."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "lieaugmenter" / "data"


def _download(file: RemoteFile, target: Path) -> None:
    partial = target.with_name(f"{target.name}.part")
    failures = []
    for address in file.mirrors:
        try:
            _bring(address, file, partial)
        except _MirrorError as failure:
            failures.append(f"{address}: {failure}")
            continue
        put_in_place(partial, target)
        return
    kept = partial.stat().st_size if partial.exists() else 0
    part = f"{_megabytes(kept)} of it are kept for the next try. " if kept else ""
    raise DataError(
        f"{file.path} could not be downloaded. {'; '.join(failures)}. {part}Try again, or put the "
        f"file into a folder as {file.path} and set {FOLDER_VARIABLE} to that folder"
    )


def _bring(address: str, file: RemoteFile, partial: Path) -> None:
    """All of the file into `partial`, or `_MirrorError`."""
    begun = _size_of(partial) > 0
    progress = TextProgress(file.size, f"downloading {file.path}")
    try:
        _connect_until_whole(address, file, partial, progress)
    finally:
        progress.close()
    if _is_intact(partial, file):
        return
    # Continuing what is wrong would never end right.
    partial.unlink()
    if begun:
        # The mistake may be in what an earlier call left.
        _bring(address, file, partial)
    else:
        raise _MirrorError("wrong checksum (SHA-256); what came was removed")


def _connect_until_whole(
    address: str, file: RemoteFile, partial: Path, progress: TextProgress
) -> None:
    for _ in range(1 + _RESUMES):
        before = _size_of(partial)
        if before >= file.size:
            return
        _append(address, file, partial, progress)
        if _size_of(partial) <= before:
            break
    if _size_of(partial) < file.size:
        raise _MirrorError(f"cut off after {_megabytes(_size_of(partial))}")


def _append(address: str, file: RemoteFile, partial: Path, progress: TextProgress) -> None:
    """Add what one connection gives to `partial`.

    Only the network's mistakes are caught: one of the disk concerns every mirror.
    """
    have = _size_of(partial)
    request = urllib.request.Request(address, headers={"User-Agent": "lieaugmenter"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _opened(request) as response:
        if not _continues_at(response, have):
            have = 0
        with partial.open("ab" if have else "wb") as out:
            while have < file.size and (chunk := _read(response, file.size - have)):
                have += out.write(chunk)
                progress.update(have, {})


def _opened(request: urllib.request.Request) -> HTTPResponse:
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise _MirrorError(f"answered {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise _MirrorError(f"no connection ({_reason(error)})") from None


def _read(response: HTTPResponse, most: int) -> bytes:
    """The next bytes; none at the end, or where the connection is cut."""
    try:
        return response.read(min(_CHUNK, most))
    except (OSError, HTTPException):
        return b""


def _continues_at(response: HTTPResponse, have: int) -> bool:
    """Whether the answer goes on where we stopped; a server may begin from the start instead."""
    if response.status != 206:
        return False
    return response.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return getattr(inner, "strerror", None) or str(inner) or type(inner).__name__


def _is_intact(path: Path, file: RemoteFile) -> bool:
    if _size_of(path) != file.size:
        return False
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time: several seeds may ask for the same set at once."""
    with lock.open("a") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
