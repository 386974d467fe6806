"""The command line: each command parses, calls memory, prints."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from contextlib import suppress

import click

from mica.cli import access as entering
from mica.cli import chains, crystals, events, marks, mcp, quality, sources, start, teachings, trails
from mica.cli import gather as gathering
from mica.cli import handoff as handing
from mica.cli import hooks as observing
from mica.cli import install as installing
from mica.cli import navigation as navigating
from mica.cli import purge as purging
from mica.cli import replay as replaying
from mica.cli import report as reporting
from mica.cli import stream as flow
from mica.cli import transcripts as importing
from mica.cli import tui as dashboard
from mica.cli import upkeep as keeping
from mica.cli import why as explaining
from mica.errors import MicaError


class _Commands(click.Group):
    """Our errors are one line and exit 1; wrong usage exits 2; Ctrl-C exits 130; anything else shows its traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            # All is loaded: from here on commands end in their way.
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return super().invoke(ctx)
        except MicaError as error:
            click.echo(f"mica: {error}", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            with suppress(OSError, ValueError):  # what is left to be written must not complain at the end, too
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo(f"mica: the answer cannot be written: {error.strerror}; send it elsewhere", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("mica: stopped", err=True)
            ctx.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mica", message="%(prog)s %(version)s")
def cli() -> None:
    """mica: layered memory and context for AI agents.

    It watches what agents do, keeps it safely, and hands each agent a short brief of what matters now. Results go to
    standard output; --json gives one stable document. Start with `mica up`.
    """


for command in (
    start.up,
    start.overview,
    entering.open_,
    entering.token,
    importing.import_,
    installing.install,
    installing.uninstall,
    observing.hook,
    observing.ingest,
    observing.observe,
    start.spaces,
    marks.mark,
    marks.search,
    marks.brief,
    marks.briefs,
    explaining.why,
    gathering.defrag,
    gathering.judge,
    gathering.warm,
    sources.sources,
    navigating.navigate,
    navigating.learn,
    crystals.crystallize,
    crystals.crystals,
    crystals.expand,
    crystals.retract,
    flow.stream,
    dashboard.tui,
    mcp.mcp,
    handing.handoff,
    handing.now,
    teachings.promote,
    teachings.teachings,
    trails.trails,
    trails.evolve,
    crystals.tick,
    replaying.replay,
    reporting.report,
    quality.quality,
    events.tree,
    events.events,
    chains.sessions,
    keeping.doctor,
    keeping.verify,
    keeping.rebuild,
    keeping.embed,
    keeping.age,
    keeping.copy,
    purging.purge,
    purging.retain,
    purging.pin,
    purging.unpin,
    keeping.prepare,
):
    cli.add_command(command)


for command in (
    chains.impact,
    chains.errors,
    chains.compare,
    chains.mermaid,
    flow.replay,
    flow.follow,
    flow.export,
    flow.import_,
):
    events.events.add_command(command)


def km() -> None:
    """The `km` command: a mark in two letters."""
    sys.argv[1:1] = ["mark"]
    main()


def _ask_again(lost: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised within a callback of its own, as while it loads a module. Ctrl-C is not for that."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGINT]).start()
    else:
        sys.__unraisablehook__(lost)


def main() -> None:
    """The `mica` command."""
    sys.unraisablehook = _ask_again
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has not all characters shows the others
    cli(prog_name="mica")
