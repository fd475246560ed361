"""The subcommands of `luminal` that work on a graph in a file, and on the cache."""
