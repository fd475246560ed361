"""The folder that `luminal build` leaves: it appears whole or not at all, and says what of it is damaged.

manifest.json   target, versions, how the program is called, where each constant lies, the checksum of every file
weights.bin     constants as the kernels read them, folds computed, and the first values of what calls update
...             plans and machine code, as `gpu_product.py` and `cpu_product.py` write them
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.errors import OptionError, ProductError
from luminal.plan.constants import Constant
from luminal.plan.plan import KernelStep, LibraryStep, Plan
from luminal.source import source_digest

Array = NDArray[Any]
FORMAT = 3
WEIGHTS, MANIFEST = "weights.bin", "manifest.json"
ALIGNMENT = 256
"""Bytes that each tensor of the weights begins at a multiple of."""
CHUNK = 16 << 20


@dataclass(frozen=True)
class ProductData:
    """What of a product is the same for all targets: `call` says how it is called (`luminal/torch/product.py`);
    `constants` are flat arrays of its constant inputs, by position; `state` bytes of arguments that calls update."""

    call: Mapping[str, Any]
    constants: Mapping[int, Array]
    state: Mapping[int, Array]


def check_folder(folder: Path) -> None:
    """OptionError where a product cannot be written there: it exists and is no empty folder, or its parent is none."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError(f"{folder} exists and is not an empty folder; name one that does not exist")
    if not folder.parent.is_dir():
        raise OptionError(f"{folder.parent} is no folder: {folder.name} cannot be made in it")


def write_folder(folder: Path, data: ProductData, plans: list[Plan], write: Callable[[Path], Any]) -> None:
    """Write a product; `write` leaves the files of its target in a folder and gives the manifest of what is in them.

    OptionError where it cannot be written, and for an operation that only this process knows.
    """
    check_folder(folder)
    _check_library(plans)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as made:
            whole = Path(made) / "product"
            whole.mkdir()
            manifest = {
                "format": FORMAT,
                "luminal": source_digest(),
                "call": data.call,
                **write(whole),
                "weights": _write_weights(whole / WEIGHTS, data, plans),
            }
            files = sorted(path for path in whole.rglob("*") if path.is_file())
            manifest["files"] = {path.relative_to(whole).as_posix(): _checksum(path) for path in files}
            (whole / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            if folder.exists():
                folder.rmdir()
            shutil.move(whole, folder)
    except OSError as error:
        raise OptionError(f"{folder}: {error.strerror}") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a product whose files are all there and whole; ProductError else."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ProductError(f"{folder} is no product of luminal build: it has no {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        found, files = manifest["format"], dict(manifest["files"])
    except (ValueError, KeyError, TypeError):
        raise ProductError(
            f"{path} is damaged, or of a product that was built before format {FORMAT}"
        ) from None
    if found != FORMAT:
        raise ProductError(
            f"{folder} has format {found}, this version of luminal reads {FORMAT}; build it again"
        )
    for name, checksum in files.items():
        file = folder / name
        if not file.is_file():
            raise ProductError(f"{folder} lacks {name}; build it again")
        if _checksum(file) != checksum:
            raise ProductError(f"{file} is not what was built: its checksum differs; build it again")
    return manifest


def read_bytes(folder: Path, place: Mapping[str, int]) -> Array:
    """The bytes at a place of the weights."""
    found = np.empty(place["bytes"], np.uint8)
    with open(folder / WEIGHTS, "rb") as file:
        file.seek(place["offset"])
        file.readinto(found)  # pyright: ignore[reportArgumentType]
    return found


def without_folds(plan: Plan) -> Plan:
    """The plan as its product has it: what its folds compute is given."""
    return replace(plan, folds=())


def _check_library(plans: list[Plan]) -> None:
    for step in (step for plan in plans for step in plan.steps):
        payload = dict(step.attributes).get("payload") if isinstance(step, LibraryStep) else None
        if '"object"' in str(payload):
            raise OptionError(f"{step.sources} runs what only this process has: it cannot be built")


def _write_weights(path: Path, data: ProductData, plans: list[Plan]) -> dict[str, Any]:
    """Where each constant that a plan reads lies in the file, folds computed; and each argument that calls update."""
    places: dict[str, dict[str, Any]] = {"constants": {}, "state": {}}
    with open(path, "wb") as file:

        def write(array: Array) -> dict[str, int]:
            file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT)
            place = {"offset": file.tell(), "bytes": array.nbytes}
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            return place

        for position, array in _baked(data.constants, plans).items():
            places["constants"][str(position)] = write(array)
        for argument, array in data.state.items():
            places["state"][str(argument)] = write(array)
    return places


def _baked(constants: Mapping[int, Array], plans: list[Plan]) -> dict[int, Array]:
    """The constants that are read, those that folds compute among them; programs of one graph have the same folds."""
    from luminal.plan.folding import folded_array

    found = dict(constants)
    for position, fold in enumerate(plans[0].folds, plans[0].given):
        sources = [Constant(found[source].ctypes.data, found[source]) for source in fold.sources]
        found[position] = folded_array(fold, sources)
    used = {position for plan in plans for position in _read(plan)}
    return {position: array for position, array in found.items() if position in used}


def _read(plan: Plan) -> set[int]:
    """The inputs that steps read."""
    values = {number for step in plan.steps for number in step.arguments}
    storages = [plan.values[number].storage for number in values]
    packed = {
        plan.packings[number].source
        for step in plan.steps
        if isinstance(step, KernelStep)
        for number in step.packed
        if number >= 0
    }
    return {storage.number for storage in (*storages, *packed) if storage.kind == "input"}


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
