"""The `kafka2011` command: one module a subcommand."""
