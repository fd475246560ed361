"""The primitive level: SSA on tensors, no implicit broadcasting, views are free."""
