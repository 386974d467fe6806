"""Groups of commands: the first page of help, and suggestions for unknown commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

import click

from mica.format.lines import alternatives

# Words that people try and that no spelling leads to. They are suggestions in the error, not aliases.
SUGGESTIONS: dict[str, tuple[str, ...]] = {
    "decisions": ("beliefs",),
    "delete": ("purge", "beliefs end"),
    "forget": ("purge", "beliefs end"),
    "list": ("events tail", "crystals list", "trails list", "upkeep spaces"),
    "remember": ("mark", "beliefs add"),
    "rules": ("beliefs",),
    "status": ("doctor",),
}

# Options that other programs have, and ours of the same meaning. `mica events tail --count` would suggest --json.
OPTIONS = dict.fromkeys(("--count", "--max", "--max-count", "--lines", "--number"), "--limit")


class CommandGroup(click.Group):
    """A group that lists its commands in the order they were added, and suggests a command for an unknown word."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(_describe_unknown(ctx, args))
        return super().resolve_command(ctx, args)


class ListingGroup(CommandGroup):
    """A group that runs its command `list` if no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_command(ctx, args))

    def with_command(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments with the command `list` in front if they name no command."""
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        return ["list", *args] if is_option or not args else args


class FirstPage(CommandGroup):
    """The `mica` command itself: its help shows the everyday commands, then the groups.

    A group that lists without a command is an everyday command.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
        for title, is_group in (("Every day", False), ("Groups of commands", True)):
            part = [(name, command) for name, command in shown if _is_plain_group(command) is is_group]
            limit = formatter.width - 6 - max(len(name) for name, _ in part)
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(limit)) for name, command in part])


def _is_plain_group(command: click.Command) -> bool:
    return isinstance(command, click.Group) and not isinstance(command, ListingGroup)


def with_option_of_same_meaning(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return an error about an unknown option, which suggests the known option with the same meaning.

    If the command has no such option, the error is returned unchanged.
    """
    known = OPTIONS.get(error.option_name)
    if known is None or error.ctx is None or not any(known in each.opts for each in error.ctx.command.params):
        return error
    return click.NoSuchOption(error.option_name, f"{error.message} Did you mean {known!r}?", ctx=error.ctx)


def command_paths(group: click.Group, words: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every visible command below a group, as in ("events", "tail"), groups included."""
    for name, command in group.commands.items():
        if not command.hidden:
            yield (*words, name)
            if isinstance(command, click.Group):
                yield from command_paths(command, (*words, name))


def _describe_unknown(ctx: click.Context, args: Sequence[str]) -> str:
    program, *above = ctx.command_path.split()
    suggested = [f"`{program} {path}`" for path in _suggest(ctx, above, args)]
    hint = (
        f"Did you mean {alternatives(suggested)}?" if suggested else f"`{ctx.command_path} --help` lists the commands."
    )
    return f"No such command {args[0]!r}. {hint}"


def _suggest(ctx: click.Context, above: Sequence[str], args: Sequence[str]) -> Sequence[str]:
    """Return the commands that an unknown word may mean.

    The table SUGGESTIONS is tried first (in a group, only its commands of that group), then commands of the same name
    in other groups, then similar names.
    """
    inside = "".join(f"{word} " for word in above)
    if known := [each for each in SUGGESTIONS.get(args[0], ()) if each.startswith(inside)]:
        return known
    root = ctx.find_root().command
    assert isinstance(root, click.Group), "only groups have commands"
    paths = list(command_paths(root))
    if same := [" ".join(path) for path in paths if path[-1] == args[0]]:
        return same
    beside = {path[-1]: " ".join(path) for path in paths if path[:-1] == tuple(above)}
    everywhere = {path[-1]: " ".join(path) for path in reversed(paths)}
    for names in (beside, everywhere):
        if close := get_close_matches(args[0], names, n=2, cutoff=0.7):
            return [names[name] for name in close]
    return ()
