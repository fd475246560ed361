"""The kernel level: regions as terms with a schedule, and their placed form of explicit loops over tiles."""
