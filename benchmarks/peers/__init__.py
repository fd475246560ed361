"""The contenders of benchmarks, a file each: what it needs, and how it makes a program its own."""
