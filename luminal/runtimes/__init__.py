"""What executes compiled graphs: one protocol, a reference, and the targets."""
