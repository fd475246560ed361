"""What docs/extending.md builds outside of Luminal's own tree: the dialect `wave` and the backend `loops`."""
