"""`python -m cli` is `kafka2011`: how the embedded deployment starts its processes."""

from cli.main import main

main()
