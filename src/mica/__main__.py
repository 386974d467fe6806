"""`python -m mica` is the `mica` command; `km` is a mark in two letters."""

import signal

# Loading takes a moment. Whoever presses Ctrl-C meanwhile wants it to end, not to read where it was.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from mica.cli import km, main

__all__ = ["km", "main"]

if __name__ == "__main__":
    main()
