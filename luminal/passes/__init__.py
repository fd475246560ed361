"""Passes from level to level, and what they share."""
