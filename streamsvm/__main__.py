"""``python -m streamsvm``."""

from streamsvm.cli import main

main()
