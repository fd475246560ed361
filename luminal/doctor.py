"""`luminal doctor`: what of this machine and its packages Luminal can use, one fact a line."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version

PACKAGES = ("luminal", "torch", "numpy", "xdsl", "llvmlite", "ml_dtypes", "triton", "transformers")


def processor() -> str:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    vectors = [
        name for name in ("avx2", "avx512f", "avx512bf16", "amx-tile", "neon", "sve") if features.get(name)
    ]
    return f"{llvm.get_host_cpu_name()}, {os.cpu_count()} cores, {', '.join(vectors) or 'no wide vectors'}"


def gpu() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use"


def compiler() -> str:
    found = [name for name in ("g++", "clang++", "c++") if shutil.which(name)]
    return f"{found[0]} (only Inductor needs one, as a peer in benchmarks)" if found else "none (not needed)"


def plugins() -> str:
    groups = ("luminal.backends", "luminal.dialects")
    names = [f"{entry.name} ({group})" for group in groups for entry in entry_points(group=group)]
    return ", ".join(names) or "none"


FACTS: dict[str, Callable[[], str]] = {
    "system": lambda: f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    "processor": processor,
    "GPU": gpu,
    "C++ compiler": compiler,
    "plug-ins": plugins,
}


def facts() -> Iterator[tuple[str, str]]:
    for name, find in FACTS.items():
        yield name, find()
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""
    del parser


def run(options: argparse.Namespace) -> int:
    del options
    for name, fact in facts():
        print(f"{name:14} {fact}")
    return 0
