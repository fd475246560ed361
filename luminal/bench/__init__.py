"""`luminal bench`: cases and peers, processes that take turns, and reports of what was measured (command.py begins)."""
