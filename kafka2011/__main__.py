"""`python -m kafka2011` is the command `kafka2011`."""

import sys

# For a clone: pip itself refuses an older Python.
if sys.version_info[:2] < (3, 11):  # noqa: UP036
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit("kafka2011 needs Python 3.11 or newer; this is Python " + found)

from kafka2011.cli.main import main

if __name__ == "__main__":
    main()
