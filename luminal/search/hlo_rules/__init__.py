"""The table of rewrite rules on hlo graphs."""

from __future__ import annotations

from luminal.search.hlo_rules import chains, integers, siblings, transposes

HLO_RULES = (*siblings.RULES, *chains.RULES, *transposes.RULES, *integers.RULES)
