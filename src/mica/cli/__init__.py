"""The command line: each command parses its options, calls a `Memory`, and prints the result.

To add a command, write its function in a module of this package, and list it here in EVERYDAY, GROUPS or HIDDEN.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from contextlib import suppress

import click

from mica.cli import (
    beliefs,
    brief,
    chains,
    crystals,
    doctor,
    events,
    hooks,
    install,
    marks,
    navigation,
    purge,
    server,
    sources,
    start,
    stream,
    trails,
    transcripts,
    upkeep,
)
from mica.cli.groups import FirstPage, with_option_of_same_meaning
from mica.cli.output import pasteable
from mica.errors import MicaError
from mica.format.lines import strip_control


class _Commands(FirstPage):
    """The root command. A MicaError is printed as one line and exits 1, wrong usage exits 2, Ctrl-C exits 130.

    A full disk while writing the result also exits 1 with one line. Any other error shows its traceback.
    """

    def invoke(self, ctx: click.Context) -> object:
        try:
            # Everything is loaded: from here on each command handles Ctrl-C itself.
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise with_option_of_same_meaning(error) from None
        except MicaError as error:
            click.echo(f"mica: {strip_control(pasteable(str(error)))}", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            with suppress(OSError, ValueError):  # the rest of the buffer must not fail again at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo(f"mica: the result cannot be written: {error.strerror}; redirect it to another place", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("mica: stopped", err=True)
            ctx.exit(130)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mica", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Memory for AI agents: record what they do, and give each one a short brief of what it needs to know now.

    Start with `mica up`. `mica COMMAND --help` explains a command and shows an example.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


EVERYDAY = (
    start.up,
    install.install,
    install.uninstall,
    transcripts.import_,
    stream.export,
    marks.mark,
    marks.search,
    brief.brief,
    navigation.navigate,
    brief.handoff,
    beliefs.beliefs,
    brief.why,
    purge.purge,
    doctor.doctor,
)
GROUPS: dict[click.Group, tuple[click.Command, ...]] = {
    beliefs.beliefs: (
        beliefs.list_,
        beliefs.add,
        beliefs.correct,
        beliefs.confirm,
        beliefs.end,
        beliefs.show,
        beliefs.edit,
    ),
    events.events: (
        events.tail,
        events.show,
        events.query_,
        events.names,
        events.emit,
        stream.follow,
        events.chain,
        events.tree,
        chains.impact,
        chains.failures,
        chains.compare,
        chains.mermaid,
        stream.replay,
        chains.sessions,
        start.overview,
        stream.import_log,
    ),
    crystals.crystals: (
        crystals.list_,
        crystals.make,
        crystals.expand,
        stream.stream,
        crystals.retract,
        crystals.promote,
        crystals.teachings,
    ),
    trails.trails: (
        trails.list_,
        trails.show,
        trails.explore,
        trails.load,
        trails.create,
        trails.rename,
        trails.suspend,
        trails.publish_,
        trails.track,
        trails.stats,
        trails.learn,
        trails.evolve,
        trails.import_,
        navigation.replay,
        navigation.report,
    ),
    sources.sources: (
        sources.gather,
        sources.judge,
        sources.list_,
        sources.test,
        sources.explain,
        sources.health,
        sources.warm,
    ),
    brief.briefs: (brief.on, brief.off, brief.status, brief.quality, brief.now),
    server.server: (server.open_, server.token, server.tui, server.prepare),
    upkeep.upkeep: (
        upkeep.spaces,
        upkeep.tick,
        upkeep.verify,
        upkeep.rebuild,
        upkeep.embed,
        upkeep.age,
        upkeep.copy,
        purge.retain,
        purge.pin,
        purge.unpin,
        hooks.hooks,
    ),
}
HIDDEN = (hooks.hook, hooks.ingest, server.mcp)  # hooks and clients start these, not people

for command in (*EVERYDAY, *GROUPS, *HIDDEN):
    cli.add_command(command)
for group, commands in GROUPS.items():
    for command in commands:
        group.add_command(command)


def km() -> None:
    """Run the `km` command, which is short for `mica mark`."""
    sys.argv[1:1] = ["mark"]
    main()


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that Python ignored because it arrived inside a callback, for example during an import."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGINT]).start()
    else:
        sys.__unraisablehook__(unraisable)


def main() -> None:
    """Run the `mica` command."""
    sys.unraisablehook = _interrupt_again
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")  # characters that the terminal lacks become question marks
    cli(prog_name="mica")
