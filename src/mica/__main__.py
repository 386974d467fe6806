"""The entry points: `mica` (also `python -m mica`), and `km`, which is short for `mica mark`."""

import signal

# Imports take a moment. Ctrl-C during them ends the process without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mica.cli import km, main

__all__ = ["km", "main"]

if __name__ == "__main__":
    main()
