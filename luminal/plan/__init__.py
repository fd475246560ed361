"""Plans: the steps of a compiled graph over one arena, and what runs them."""
