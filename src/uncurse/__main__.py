"""`python -m uncurse`: the command, for launchers that start modules."""

from uncurse.cli import main

main()
