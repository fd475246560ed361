"""Placed kernels as Triton's text for NVIDIA and AMD: a tile becomes a block of a program."""
