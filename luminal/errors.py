"""One exception class per mistake a user can make; all derive from LuminalError.

Each class also derives from the built-in exception that PyTorch or Python raises for the same mistake, so that
`except IndexError` keeps working. Messages name what was given and what would be right.
"""

from __future__ import annotations


class LuminalError(Exception):
    """Base of every error that Luminal raises on purpose."""


class ShapeError(LuminalError, ValueError):
    """Shapes do not fit the operation."""


class DTypeError(LuminalError, TypeError):
    """A dtype is unknown, or does not fit the operation or the value."""


class AxisError(LuminalError, IndexError):
    """An axis lies outside the tensor's rank, or is named twice."""


class OptionError(LuminalError, ValueError):
    """An option or attribute is unknown or has a value that it cannot have."""


class ScalarError(LuminalError, ValueError):
    """A number that its dtype cannot hold, or an integer division by the number 0."""


class GraphError(LuminalError, ValueError):
    """Tensors of two graphs meet, a name is given twice, or a graph is used in the wrong order."""


class ModelError(LuminalError, RuntimeError):
    """A model fails, also without the compiler, on the inputs that come with it."""


class ModelFileError(LuminalError, ValueError):
    """A file of a model is damaged or cut off, holds what cannot be read, is not what its metadata say, or needs a
    package that is not installed."""


class OutputError(LuminalError, RuntimeError):
    """A value is read that is no output of the graph, or before the graph was executed."""


class UnknownDimError(LuminalError, KeyError):
    """A dim is named that the graph does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnsetInputError(LuminalError, RuntimeError):
    """An input of the graph has no data."""


class UnsetDimError(LuminalError, KeyError):
    """A symbolic dim has no value where one is needed."""

    def __str__(self) -> str:  # KeyError would print the repr of its message
        return str(self.args[0]) if self.args else ""


class DimRangeError(LuminalError, ValueError):
    """A dim has a value outside its declared range, or two ranges, or divides by zero."""


class DataSizeError(LuminalError, ValueError):
    """Data has another number of elements, shape or rank than its tensor."""


class DeviceError(LuminalError, RuntimeError):
    """A tensor lies on a device that the target does not serve."""


class NoDeviceError(LuminalError, RuntimeError):
    """A program for a GPU is run where that GPU is not."""


class DriverError(LuminalError, RuntimeError):
    """The driver of a GPU is not there, or a call of it has failed: what it was asked for and what it said."""


class ProductError(LuminalError, ValueError):
    """A folder that holds no product of `luminal build`, one of another version, or a damaged one."""


class IndexOutOfRangeError(LuminalError, IndexError, RuntimeError):
    """An index of a gather or scatter lies outside the tensor at run time (torch raises either base)."""


class DivisionByZeroError(LuminalError, ZeroDivisionError, RuntimeError):
    """An integer was divided by zero at run time (torch raises a RuntimeError that says ZeroDivisionError)."""


class UnsupportedOpError(LuminalError, NotImplementedError):
    """An operation has no lowering where one is demanded (strict mode)."""


class UnsupportedTargetError(LuminalError, ValueError):
    """The target is not known, or cannot hold a dtype or an operation."""


class VerifyError(LuminalError, ValueError):
    """IR text or a module that breaks the rules of its dialect."""


class ScheduleError(LuminalError, ValueError):
    """A schedule that is not legal for its region."""


class ConfigError(LuminalError, ValueError):
    """A config that is none, or whose cuts, form or schedule are not legal for what they are given to."""


class LicenceError(LuminalError, ValueError):
    """A licence name is unknown, or a rewrite lacks the licence that it needs."""


class CacheFileError(LuminalError, ValueError):
    """A file of exported results that cannot be read or written, is damaged, or is something else."""


class SoundnessError(LuminalError, AssertionError):
    """A kernel that the compiler made disagrees with the reference: a bug of the compiler, with what shows it."""


class CandidateWarning(UserWarning):
    """A kernel that the compiler made has crashed or hung where it was timed, and another was taken."""


class ProfilingWarning(UserWarning):
    """Kernels are timed in the program's own process, since no other could be started."""


class CompileError(LuminalError, RuntimeError):
    """Code generation failed; an internal mistake that is never hidden."""


class CompilationError(LuminalError, RuntimeError):
    """A GPU's compiler has refused a kernel, crashed, or taken too long: a candidate that is left out.

    `reason` is one line; `log` is the file that holds all that the compiler said.
    """

    def __init__(self, kernel: str, target: str, reason: str, log: str) -> None:
        super().__init__(f"kernel {kernel} for {target}: {reason}; all that was said is in {log}")
        self.kernel, self.target, self.reason, self.log = kernel, target, reason, log

    def __reduce__(self) -> tuple[type[CompilationError], tuple[str, str, str, str]]:
        return CompilationError, (self.kernel, self.target, self.reason, self.log)
