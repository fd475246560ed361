"""Tables of rewrite rules on the terms of a region."""

from __future__ import annotations

from luminal.search.rules import algebra, folds

TERM_RULES = (*algebra.RULES, *folds.RULES)
