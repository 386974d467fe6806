"""`python -m mica` is the `mica` command."""

from mica.cli import main

main()
