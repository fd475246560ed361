"""The command `luminal-opt`: reads IR text of any level, runs named passes, verifies, prints.

    luminal-opt graph.mlir --passes lower-hlo,simplify,add-regions,schedule-regions,place-regions

Exit status: 0; 1 for IR that does not parse, verify or lower; 2 for a command line that cannot be used. Messages go to
stderr, the IR to stdout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.printer import Printer
from xdsl.utils.exceptions import (
    ArgSpecParseError,
    DiagnosticException,
    ParseError,
    PassFailedException,
    VerifyException,
)
from xdsl.xdsl_opt_main import xDSLOptMain

from luminal.dialects import all_dialects
from luminal.errors import LuminalError

PASSES: dict[str, str] = {
    "lower-hlo": "luminal.passes.lower_hlo:lower_hlo",
    "simplify": "luminal.passes.simplify:simplify",
    "add-regions": "luminal.passes.kernel_passes:add_regions",
    "schedule-regions": "luminal.search.schedule_pass:schedule_regions",
    "place-regions": "luminal.passes.kernel_passes:place_regions",
    "place": "luminal.passes.kernel_passes:place_regions",
}
"""By name, the function of a pass, which changes the module that it is given."""


class UsageError(Exception):
    """A command line that cannot be used."""


def make_pass(name: str, path: str) -> type[ModulePass]:
    """The xDSL pass around a function `module -> None`, which is imported now."""
    module_name, _, function_name = path.partition(":")
    function: Callable[[ModuleOp], None] = getattr(import_module(module_name), function_name)

    def apply(self: ModulePass, ctx: Context, op: ModuleOp) -> None:
        function(op)

    members: dict[str, object] = {"name": name, "apply": apply, "__doc__": function.__doc__}
    return dataclass(frozen=True)(type(f"{function_name}_pass", (ModulePass,), members))


class LuminalOptMain(xDSLOptMain):
    """xDSL's driver with Luminal's dialects and passes."""

    version_format: ClassVar[str] = "luminal-opt, built on xDSL {xdsl_version}"

    def __init__(self, args: Sequence[str] | None = None) -> None:
        super().__init__("Luminal's IR: parse, run passes, verify, print.", args)

    def register_all_dialects(self) -> None:
        for name, factory in all_dialects().items():
            self.ctx.register_dialect(name, factory)

    def register_all_passes(self) -> None:
        for name, path in PASSES.items():
            self.register_pass(name, lambda name=name, path=path: make_pass(name, path))

    def register_all_targets(self) -> None:
        super().register_all_targets()
        # what xDSL's own backends print, they print of its own dialects
        self.available_targets = {"mlir": self.available_targets["mlir"]}

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        arg_parser.prog = "luminal-opt"
        super().register_all_arguments(arg_parser)
        arg_parser.add_argument(
            "--print-ir-after-all", action="store_true", help="Print the IR to stderr after each pass"
        )

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        try:
            return super().prepare_input()
        except ValueError as error:  # a file whose extension no frontend reads
            raise UsageError(f"{self.args.input_file}: {error}") from None

    def setup_pipeline(self) -> None:
        """Verifies before the first pass and after every one, and prints what was asked for."""
        try:
            super().setup_pipeline()
        except (ArgSpecParseError, ValueError, TypeError, KeyError) as error:
            listed = ", ".join(self.available_passes)
            raise UsageError(
                f"--passes {self.args.passes}: {_first_line(error)}; passes are {listed}"
            ) from None
        verify_and_time = self.pipeline.callback

        def callback(previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            if self.args.print_ir_after_all and previous is not None:
                print(f"// IR after {previous.name}\n{_text(module)}", file=sys.stderr)
            if verify_and_time is not None:
                verify_and_time(previous, module, following)

        self.pipeline = PassPipeline(self.pipeline.passes, callback)


def _text(module: ModuleOp) -> str:
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue() + "\n"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the module's docstring for what it returns."""
    try:
        LuminalOptMain(arguments).run()
    except (UsageError, UnicodeDecodeError) as error:
        print(f"luminal-opt: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"luminal-opt: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except (ParseError, DiagnosticException, VerifyException, PassFailedException, LuminalError) as error:
        print(f"luminal-opt: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
