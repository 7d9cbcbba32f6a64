"""`python -m kafka2011` is the command `kafka2011`."""

import sys

# From a clone; pip refuses an older one by itself.
if sys.version_info[:2] < (3, 11):  # noqa: UP036
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit("kafka2011 needs Python 3.11 or newer; this is Python " + found)

from kafka2011.cli.main import main

if __name__ == "__main__":
    main()
