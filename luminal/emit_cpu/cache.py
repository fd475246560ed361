"""Objects on disk, under the user's cache folder or LUMINAL_CACHE_DIR: compiled once a machine, shared by
processes.

An entry's name is a hash of the module's text and of the target with LLVM's version. It holds a header, a
checksum and the object: whatever is corrupt, cut short or made by another version is compiled again and
replaced. Entries are written beside and moved into place, so that a reader never sees half of one. Beyond a
size limit the oldest go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import platformdirs

from luminal.emit_cpu.jit import Target, compile_object

MAGIC = b"luminal object 1\n"
LIMIT_BYTES = 1 << 30
CHECK_EVERY = 64
"""entries written by a process between two looks at the folder's size"""
_DIGEST = hashlib.sha256().digest_size
_written = 0


def cache_directory() -> Path:
    """Where compiled objects are kept; not made yet, perhaps."""
    chosen = os.environ.get("LUMINAL_CACHE_DIR")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("luminal", False))


def object_key(text: str, target: Target) -> str:
    """The name of an entry: what the object depends on, hashed."""
    return hashlib.sha256(f"{target.key}\n{text}".encode()).hexdigest()


def _seal(key: str, image: bytes) -> bytes:
    return MAGIC + bytes.fromhex(key) + hashlib.sha256(image).digest() + image


def _unseal(key: str, entry: bytes) -> bytes | None:
    """The object of an entry, or None where it is not whole or not this one's."""
    head = MAGIC + bytes.fromhex(key)
    start = len(head) + _DIGEST
    image = entry[start:]
    if not entry.startswith(head) or hashlib.sha256(image).digest() != entry[len(head) : start]:
        return None
    return image


def read_entry(key: str, directory: Path | None = None) -> bytes | None:
    """The object kept under a key; None where there is none that is whole."""
    path = (directory or cache_directory()) / "objects" / key[:2] / key
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    image = _unseal(key, entry)
    if image is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
    return image


def write_entry(key: str, image: bytes, directory: Path | None = None, limit: int = LIMIT_BYTES) -> None:
    """Keep an object. A folder that cannot be written, or a full disk, is no error: the next process compiles
    again."""
    global _written
    root = (directory or cache_directory()) / "objects"
    folder = root / key[:2]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_seal(key, image))
            os.replace(temporary, folder / key)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError:
        return
    _written += 1
    if _written % CHECK_EVERY == 1:
        evict(root, limit)


def evict(root: Path, limit: int) -> None:
    """Remove the entries that were used longest ago until the rest fits into `limit` bytes."""
    entries: list[tuple[float, int, Path]] = []
    for path in root.glob("*/*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size


def cached_object(text: str, target: Target) -> tuple[bytes, bool]:
    """The object of a module's text, from the cache where it is there; and whether it was."""
    key = object_key(text, target)
    image = read_entry(key)
    if image is not None:
        return image, True
    image = compile_object(text, target)
    write_entry(key, image)
    return image, False
