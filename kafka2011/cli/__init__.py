"""The `kafka2011` command: one module a subcommand; the only importer of services."""
