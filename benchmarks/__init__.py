"""Suites of `luminal bench`: a file with cases of a model, or a package with measurements."""
