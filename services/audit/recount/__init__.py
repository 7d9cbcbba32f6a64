"""The recount: everything counted again from the messages, independent of the running service."""
