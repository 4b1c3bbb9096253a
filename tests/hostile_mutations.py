"""What a hostile or broken file looks like: small changes to a good one, made where they matter.

Files that guard themselves by checksums or nested formats would refuse a changed byte before their
reader is reached, so archives are changed member by member, and JSON node by node.
"""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

MARKUP = '"><img src=x onerror=alert(1)>'
# Numbers at the edges of what bytes, words and floats hold, as text.
_NUMBERS = (
    b"0", b"-1", b"255", b"65536", b"2147483648", b"-9223372036854775809", b"1e308", b"-1e999",
    b"nan", b"1" * 5000, b"1_000", "٣".encode(),
)  # fmt: skip
_PIECES = (
    *_NUMBERS, b"", b"\0", b"\xff" * 8, b"\r\n", b'"', b",", b"[" * 3000, b"{" * 3000, b"../../x",
    b"\x80\x04.", b"'O'", b"(999999999999, 9)", MARKUP.encode(), "‮\u200f".encode(),
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, -1e308, 1e-320, 0.0, float("nan"),
    float("inf"), "", "x", "0", MARKUP, "\ud800", "n" * 5000, [], {}, [[]], [None], [[1.0]],
    ["x"], {"x": 1}, [0] * 50, [10**9, 10**9, 10**9], [0, 10**12],
)  # fmt: skip


def mutate(content: bytes, kind: str, random: Random) -> bytes:
    """A changed copy of a file.

    Parameters
    ----------
    content
        The file, or what is left of it after earlier changes.
    kind
        Of `KINDS`: what the file is, and so where changes may be made.
    random
        Decides on everything.
    """
    changed = content
    for _ in range(random.choice((1, 1, 2, 4))):
        # Half of the time below the format's own guards, if there is still a format to speak of.
        made = KINDS[kind](changed, random) if random.random() < 0.7 else None
        changed = _edited(changed, random) if made is None else made
    return changed


def _edited(content: bytes, random: Random) -> bytes:
    """One edit of bytes: flipped, replaced, inserted, removed, repeated or cut."""
    start = random.randrange(len(content) + 1)
    end = min(len(content), start + random.choice((0, 1, 1, 2, 4, 8, 64)))
    how = random.randrange(6)
    if how == 0 and start < len(content):
        flipped = content[start] ^ (1 << random.randrange(8))
        return content[:start] + bytes([flipped]) + content[start + 1 :]
    if how == 1:
        return content[:start]
    if how == 2:
        return content[:start] + content[start:end] * 3 + content[end:]
    if how == 3:
        word = struct.pack(random.choice("<>") + "q", random.choice((-1, 0, 1, 2**31, 2**62)))
        return content[:start] + word[: random.choice((2, 4, 8))] + content[end:]
    return content[:start] + random.choice(_PIECES) + content[end:]


def _changed_json(content: bytes, random: Random) -> bytes | None:
    """One node of a JSON document replaced, removed, or doubled."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return None
    try:
        return json.dumps(_changed_tree(tree, random)).encode()
    except (ValueError, RecursionError):
        return None


def _changed_tree(tree: Any, random: Random) -> Any:
    if isinstance(tree, dict | list) and tree and random.random() < 0.85:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = random.choice(keys)
        if random.random() < 0.15:
            copied = tree.copy()
            del copied[key]
            return copied
        changed = _changed_tree(tree[key], random)
        if isinstance(tree, dict):
            return {**tree, key: changed}
        return [*tree[:key], changed, *tree[key + 1 :]]
    # Half of the time of the kind that is expected, to get past the first look.
    alike = [value for value in _VALUES if type(value) is type(tree)]
    if isinstance(tree, list):
        alike += [tree[:1], tree[::-1], tree * 3]
    return random.choice(alike if alike and random.random() < 0.5 else _VALUES)


def _changed_lines(content: bytes, random: Random) -> bytes | None:
    """One line of a file of JSON lines."""
    lines = content.split(b"\n")
    place = random.randrange(len(lines))
    made = _changed_json(lines[place], random)
    return None if made is None else b"\n".join([*lines[:place], made, *lines[place + 1 :]])


def _changed_tensors(content: bytes, random: Random) -> bytes | None:
    """The header of a safetensors file, or the JSON that this project keeps in it."""
    try:
        length = int.from_bytes(content[:8], "little")
        header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
        words = header["__metadata__"]["json"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    # Files without a checksum are read as well: with the old one nothing would be looked at.
    header["__metadata__"].pop("sha256", None)
    if random.random() < 0.6:
        made = _changed_json(words, random)
        header["__metadata__"]["json"] = (made or words).decode()
    else:
        header = _changed_tree(header, random)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


def _changed_table(content: bytes, random: Random) -> bytes:
    """One cell of a table, or its header."""
    lines = content.split(b"\n")
    place = random.choice((0, random.randrange(len(lines))))
    cells = lines[place].split(b",")
    cells[random.randrange(len(cells))] = random.choice(_PIECES)
    return b"\n".join([*lines[:place], b",".join(cells), *lines[place + 1 :]])


def _changed_zip(content: bytes, random: Random) -> bytes | None:
    """One member of an archive: its bytes, its name, or whether it is there; packed anew."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    except Exception:  # whatever an archive that was changed before raises
        return None
    if not members:
        return None
    place = random.randrange(len(members))
    name, inner = members[place]
    how = random.randrange(8)
    if how == 0:
        del members[place]
    elif how == 1:
        members.insert(place, (random.choice(("X.npy", "a/b.png", "../x.png", name)), inner))
    else:
        change = _changed_array if inner[:6] == b"\x93NUMPY" else _edited
        members[place] = name, change(inner, random)
    packed = io.BytesIO()
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(packed, "w", method) as archive, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate name")
        for member, inner in members:
            archive.writestr(zipfile.ZipInfo(member), inner)
    return packed.getvalue()


def _changed_array(content: bytes, random: Random) -> bytes:
    """The words of an .npy's header: type, order, shape; or its bytes."""
    if content[:8] != b"\x93NUMPY\x01\0" or random.random() < 0.3:
        return _edited(content, random)
    length = int.from_bytes(content[8:10], "little")
    words, rest = content[10 : 10 + length], content[10 + length :]
    for old in random.sample((b"<f8", b"|b1", b"(", b")", b"False", b"'shape'", b"<"), 2):
        new = random.choice(
            (b"|O", b"<U9", b"<M8[s]", b"<c16", b"<f2", b"|V0", b"|S0", b"<U0", b"(0, ",
             b"(-1, ", b"(10000000000, ", b"(99999999999999999999, ", b"True", b"((", b"-")
        )  # fmt: skip
        if old in words:
            words = words.replace(old, new, 1)
            break
    return b"\x93NUMPY\x01\0" + len(words).to_bytes(2, "little") + words + rest


def _changed_png(content: bytes, random: Random) -> bytes | None:
    """One chunk of a PNG, with the checksum that it then needs."""
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    chunks, start = [], 8
    while start + 12 <= len(content):
        length = int.from_bytes(content[start : start + 4], "big")
        chunks.append(content[start + 4 : start + 8 + length])
        start += 12 + length
    if not chunks:
        return None
    place = random.randrange(len(chunks))
    chunks[place] = _edited(chunks[place], random)
    packed = [
        max(0, len(c) - 4).to_bytes(4, "big") + c + zlib.crc32(c).to_bytes(4, "big") for c in chunks
    ]
    return content[:8] + b"".join(packed)


def _changed_tar(content: bytes, random: Random) -> bytes | None:
    """One field of a member's header, with the checksum that it then needs."""
    if len(content) < 1024:
        return None
    # Only places where a header may begin.
    place = 512 * random.randrange(len(content) // 512)
    header = bytearray(content[place : place + 512])
    if header[257:262] != b"ustar":
        return None
    field, size = random.choice(((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (345, 100)))
    filler = random.choice((b"\xff", b"\x80", b"7", b"-1 ", b"x", b"L", b"S", b"g", b"0", b"\0"))
    header[field : field + size] = (filler * size)[:size]
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return content[:place] + bytes(header) + content[place + 512 :]


KINDS: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "array": _changed_array,
    "bytes": _edited,
    "json": _changed_json,
    "jsonl": _changed_lines,
    "png": _changed_png,
    "table": _changed_table,
    "tar": _changed_tar,
    "tensors": _changed_tensors,
    "zip": _changed_zip,
}
