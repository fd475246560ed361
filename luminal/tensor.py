"""The Tensor of the Graph API: PyTorch's methods, recorded as hlo ops instead of computed."""

from __future__ import annotations

from luminal.tensor_base import TensorBase
from luminal.tensor_binary import BinaryMethods, select
from luminal.tensor_indexing import IndexingMethods
from luminal.tensor_reductions import ReductionMethods, ValuesAndIndices
from luminal.tensor_views import ViewMethods, cat, stack

where = select

__all__ = ["Tensor", "TensorBase", "ValuesAndIndices", "cat", "stack", "where"]


class Tensor(BinaryMethods, ViewMethods, ReductionMethods, IndexingMethods):
    """One value of a `Graph`. Made by `Graph.tensor`, `Graph.constant` and the methods of other tensors."""

    __slots__ = ()
    __hash__ = TensorBase.__hash__

    def output(self, name: str | None = None) -> Tensor:
        """Make this a result of the graph, which a runtime can be asked for; returns the tensor itself."""
        self.graph.add_output(self)
        if name is not None:
            self.name = name
        return self

    def named(self, name: str) -> Tensor:
        """The same tensor under a name that errors and printed IR use."""
        self.name = name
        self.value.name_hint = name if self.value.is_valid_name(name) else None
        return self

    def expand_as(self, other: Tensor) -> Tensor:
        """`expand` to the shape of another tensor."""
        return self.expand(other.shape)

    def type_as(self, other: Tensor) -> Tensor:
        """`cast` to the dtype of another tensor."""
        return self._as(other.dtype)
