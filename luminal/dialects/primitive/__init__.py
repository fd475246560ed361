"""The primitive level: SSA on tensors, no implicit broadcasting, views are free.

`ops` is the table of ops, `build` makes IR, `interpreter` runs it in NumPy with PyTorch's meaning.
"""
