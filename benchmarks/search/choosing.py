"""Compilations in which another chooser decides: the one place that knows how a compilation asks for its chooser."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from unittest import mock

from luminal.options import CompileOptions
from luminal.plan import choosers
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.chooser import TimedChooser
from luminal.search.forms import Forms
from luminal.search.purse import Purse


@contextmanager
def chosen_by(make: Callable[[KernelCompiler, CompileOptions, Forms], TimedChooser]) -> Generator[None]:
    """While open, each compilation has the chooser that `make` returns; no purse limits it."""

    def chooser(
        compiler: KernelCompiler,
        options: CompileOptions,
        forms: Forms | None = None,
        purse: Purse | None = None,
    ) -> TimedChooser:
        del purse
        return make(compiler, options, forms or Forms())

    with mock.patch.object(choosers, "timed_chooser", chooser):
        yield
