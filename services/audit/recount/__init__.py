"""The recount: everything counted again from the files, as an independent witness."""
