"""Finds the files that a shell command reads, searches, lists and edits.

Coding agents read files through their shell tool: `sed -n '10,40p' F` is a read of F. A command is split into
pipelines, and each pipeline is simulated with a table of programs. A read passes through the pipeline as a stream of
lines: `cat F` starts a stream, `head` shortens it, and a program that is not in the table ends it. The simulation stops
at a loop, a condition or `$(…)`: the part before it is used, the rest is ignored.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeGuard

import msgspec

from mica.clients.shell.parser import DIGITS, STOP, ParseError, ShellToken, tokens_of
from mica.clients.shell.shown_lines import (
    ALL,
    RANGES_MAX,
    Operation,
    ShellSearch,
    ShellStep,
    Take,
    awk_lines,
    blur,
    bottom,
    clip_reads,
    find_hits,
    join_path,
    option_lines,
    perl_lines,
    printed_lines,
    sed_lines,
    select_all,
    top,
)

COMMAND_CHARS_MAX = 65_536  # commands that read files have a few hundred; longer ones contain a program or a file
NESTING_MAX = 8  # bash -c inside bash -c; agents use one


def _length_unknown(_path: str) -> int | None:
    return None


def steps(
    command: str,
    *,
    output: str | None = None,
    ok: bool = True,
    lines_of: Callable[[str], int | None] = _length_unknown,
) -> list[ShellStep]:
    """Return the file accesses of a command, in order; empty if there are none or the command cannot be parsed.

    `output` is what the command printed, without a notice that the client inserted where it cut the output. It limits
    the ranges of reads, and the hits of a search are taken from it. If the command failed (`ok` is False) and printed
    nothing, only its edits are returned. `lines_of` maps a path to the number of lines of that file, or None. Never
    raises, and takes time linear in the length of command and output.
    """
    if len(command) > COMMAND_CHARS_MAX:
        return []
    shell = ShellState(lines_of)
    try:
        events = shell.run(command)
    except ParseError:
        return []
    lines = None if output is None else printed_lines(output, complaints=_COMPLAINTS)
    if not ok and not lines:  # it failed without output: nothing was shown, but files may have been written
        return [step for step in _as_steps(events) if step.operation == "edit"]
    if lines is None:
        return _as_steps(events)
    alone = shell.printing_pipelines == 1
    reads = iter(clip_reads([event for event in events if _is_read(event)], printed=len(lines), alone=alone))
    found: list[ShellStep] = []
    for event in events:
        if isinstance(event, ShellSearch):
            found += find_hits(event, lines, alone=alone)
        else:
            found += next(reads) if event.operation == "read" else [event]
    return found


# -- Simulating a command -----------------------------------------------------------------------------------

_Event = ShellStep | ShellSearch
_Stdin = list[ShellStep] | None  # None: this program begins the pipeline


@dataclass
class ParsedCommand:
    """One program of a pipeline, with its words and redirections."""

    words: list[ShellToken] = field(default_factory=list)
    sources: list[ShellToken] | None = None  # < F; empty for here-documents
    targets: list[ShellToken] = field(default_factory=list)  # > F
    hidden: bool = False  # the output goes to a file

    def redirect(self, operator: str, target: ShellToken) -> None:
        kind = operator.lstrip(DIGITS)
        if kind.startswith("<"):
            self.sources = [target] if kind == "<" else []
        elif kind != ">&" or not (target.text.isdigit() or target.text == "-"):
            self.hidden = self.hidden or operator[0] in "1&>"
            self.targets += [] if target.text.startswith("/dev/") else [target]


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_WRAPPERS = {  # with the options that take a value; `command -v cat` only asks where cat is
    "command": "vV",
    "env": "uC",
    "nice": "n",
    "nohup": "",
    "sudo": "ughpC",
    "time": "",
    "timeout": "ks",
}
_COMPOUND = ("for", "while", "until", "if", "case", "select", "function", "[[")
_SHELLS = ("bash", "sh", "zsh", "dash")
_SILENT = ("", "cd", "pushd", "popd", "export", "set", *_SHELLS)  # a shell is silent, its script is not
_KEEP_HITS = ("head", "tail", "sort", "uniq", "cat", "less", "more", "tee", "sed", "grep", "rg")


class ShellState:
    """Simulates shell commands without running them, and remembers the current directory between them."""

    def __init__(self, lines_of: Callable[[str], int | None]) -> None:
        self.lines_of = lines_of
        self.directory: str | None = ""  # relative to the start; None: unknown
        self.printing_pipelines = 0
        self.nesting = 0

    def run(self, text: str) -> list[_Event]:
        """Return the file accesses and searches of a command line. Raises ParseError."""
        events: list[_Event] = []
        outside: list[str | None] = []  # directories to return to after ( … )
        pipeline = [ParsedCommand()]
        joint, navigated = "", False  # the operator before this pipeline, and whether the list touched a file yet
        tokens = iter([*tokens_of(text), ShellToken(";", operator=True)])
        for token in tokens:
            command, operator = pipeline[-1], token.text
            if not token.operator:
                command.words.append(token)
            elif token is STOP or (operator == "(" and command.words) or _compound(command):
                self.printing_pipelines += 1
                break
            elif "<" in operator or ">" in operator:
                target = next(tokens)
                if target.operator:
                    raise ParseError
                command.redirect(operator, target)
            elif operator in ("|", "|&"):
                pipeline.append(ParsedCommand())
            elif operator == "\n" and not command.words and (len(pipeline) > 1 or joint in ("&&", "||")):
                continue  # the command continues on the next line
            else:
                if joint != "||" or not navigated:  # of A || B, usually only A ran
                    directory, new = self.directory, self._pipeline(pipeline)
                    events += new
                    navigated = navigated or bool(new) or self.directory != directory
                if operator == "(":
                    outside.append(self.directory)
                elif operator == ")" and outside:
                    self.directory = outside.pop()
                pipeline, joint = [ParsedCommand()], operator
                navigated = navigated and operator in ("&&", "||")
        return events

    def _pipeline(self, commands: Sequence[ParsedCommand]) -> list[_Event]:
        directory = self.directory
        stream: list[_Event] = []
        for index, command in enumerate(commands):
            stream = self._command(command, stream, piped=index > 0)
            if len(commands) > 1:
                self.directory = directory  # each program of a pipeline has its own
        self.printing_pipelines += _program(_unwrap(commands[-1].words)) not in _SILENT
        return stream

    def _command(self, command: ParsedCommand, stream: Sequence[_Event], *, piped: bool) -> list[_Event]:
        """Simulate one program of a pipeline. Returns its events, and those of earlier programs that remain valid."""
        words = _unwrap(command.words)
        program = _program(words)
        stdin = [event for event in stream if _is_read(event)] if piped else None
        if command.sources is not None:
            stdin = self.files(command.sources, []) if command.sources else []
        known = _PROGRAMS.get(program)
        new = known(self, words[1:], stdin) if known else []
        past: Sequence[_Event] = [event for event in stream if not _is_read(event)]
        if program not in _KEEP_HITS:
            past = _as_steps(past)
        if command.hidden:
            new = [step for step in _as_steps(new) if step.operation != "read"]
        return [*past, *new, *self.steps_at("edit", command.targets)]

    def path(self, word: ShellToken) -> str | None:
        """Return a word as a path from the directory in which the command line began; None if it is unknown."""
        if not word.literal or not word.text:
            return None
        if word.text.startswith(("/", "~")):
            return join_path("", word.text)
        return None if self.directory is None else join_path(self.directory, word.text)

    def steps_at(self, operation: Operation, words: Iterable[ShellToken]) -> list[ShellStep]:
        paths = [self.path(word) for word in words]
        return [ShellStep(operation=operation, path=path) for path in paths if path is not None]

    def files(self, operands: Sequence[ShellToken], stdin: _Stdin) -> list[ShellStep]:
        """Return reads of all these files. The operand `-`, and an empty list, stand for the incoming stream."""
        reads: list[ShellStep] = []
        for word in operands or [ShellToken("-")]:
            if word.text == "-":
                reads += stdin or ()
            elif (path := self.path(word)) is not None:
                length = self.lines_of(path) or None  # an empty file has no last line
                reads.append(ShellStep(operation="read", path=path, start_line=1, end_line=length))
        return reads


def _is_read(event: _Event) -> TypeGuard[ShellStep]:
    return isinstance(event, ShellStep) and event.operation == "read"


def _as_steps(events: Iterable[_Event]) -> list[ShellStep]:
    return [step for event in events for step in (event.places if isinstance(event, ShellSearch) else [event])]


def _compound(command: ParsedCommand) -> bool:
    return any(word.text in _COMPOUND for word in _unwrap(command.words)[:1])


def _program(words: Sequence[ShellToken]) -> str:
    return posixpath.basename(words[0].text) if words else ""


def _unwrap(words: list[ShellToken]) -> list[ShellToken]:
    """Remove prefixes such as `VAR=x`, `time` and `sudo -u me` from a command."""
    while words:
        program = _program(words)
        if program in _WRAPPERS:
            words = _options(words[1:], valued=_WRAPPERS[program], permute=False)[1]
            words = words[1:] if program == "timeout" else words
        elif words[0].text in ("!", "{") or _ASSIGNMENT.match(words[0].text):
            words = words[1:]
        else:
            break
    return words


def _options(
    words: Iterable[ShellToken],
    *,
    valued: str = "",  # letters that take a value
    attached: str = "",  # letters whose value, if any, is the rest of the word
    long: Collection[str] = (),  # names that take a value
    permute: bool = True,
) -> tuple[dict[str, list[str]], list[ShellToken]]:
    """Split words into options with values, and operands. `-20` is the option "#"; an unknown option has no value."""
    options: dict[str, list[str]] = {}
    operands: list[ShellToken] = []
    rest = iter(words)
    for word in rest:
        text = word.text
        if text == "--":
            operands.extend(rest)
        elif text == "-" or not text.startswith("-"):
            operands += [word] if permute else [word, *rest]
        elif text.startswith("--"):
            name, equals, value = text[2:].partition("=")
            if name in long and not equals:
                value = next(rest, ShellToken("")).text
            options.setdefault(name, []).append(value)
        elif text[1:].isdigit():
            options.setdefault("#", []).append(text[1:])
        else:
            for index, letter in enumerate(text[1:], start=2):
                takes = letter in valued or letter in attached
                value = text[index:] if takes else ""
                if letter in valued and not value:
                    value = next(rest, ShellToken("")).text
                options.setdefault(letter, []).append(value)
                if takes:
                    break
    return options, operands


# -- Programs: each function takes a program's words and its incoming stream, and returns its events ------------


def _cat(shell: ShellState, words: list[ShellToken], stdin: _Stdin, *, valued: str = "") -> Sequence[_Event]:
    return shell.files(_options(words, valued=valued)[1], stdin)


def _head_or_tail(shell: ShellState, words: list[ShellToken], stdin: _Stdin, *, take: Take) -> Sequence[_Event]:
    """Simulate `head` or `tail` (`take`): a part of each file, or of the incoming stream."""
    options, operands = _options(words, valued="nc", long=("lines", "bytes"))
    reads = shell.files(operands, stdin)
    if "c" in options or "bytes" in options:
        return blur(reads)
    count = [*options.get("#", []), *options.get("n", []), *options.get("lines", []), "10"][0]
    streams = [[read] for read in reads] if operands else [reads]
    return [read for stream in streams if stream for read in take(stream, count)]


def _sed(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    options, operands = _options(words, valued="efl", attached="i", long=("expression", "file"))
    in_place = "i" in options or "in-place" in options
    if in_place and operands and not operands[0].text:  # BSD: sed -i '' SCRIPT F
        operands = operands[1:]
    scripts = options.get("e", []) + options.get("expression", [])
    from_file = "f" in options or "file" in options
    if not scripts and not from_file:
        scripts, operands = [word.text for word in operands[:1]], operands[1:]
    if in_place:
        return shell.steps_at("edit", operands)
    quiet = not options.keys().isdisjoint(("n", "quiet", "silent"))
    lines = None if from_file else sed_lines("\n".join(scripts), quiet=quiet)
    return select_all(shell.files(operands, stdin), lines)


def _awk(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    options, operands = _options(words, valued="Fvfi", permute=False)
    if "f" in options or not operands:
        return []
    if "inplace" in options.get("i", []):
        return shell.steps_at("edit", operands[1:])
    return select_all(shell.files(operands[1:], stdin), awk_lines(operands[0].text))


def _perl(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    options, operands = _options(words, valued="eEIMm", attached="i0", permute=False)
    if "e" not in options or options.keys().isdisjoint("np"):
        return []
    if "i" in options:
        return shell.steps_at("edit", operands)
    lines = perl_lines(options["e"][-1]) if "n" in options else ALL
    return select_all(shell.files(operands, stdin), lines)


def _bat(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    long = ("line-range", "language", "style", "theme", "paging", "color", "highlight-line")
    options, operands = _options(words, valued="rlH", long=long)
    reads = shell.files(operands, stdin)
    texts = (options.get("r", []) + options.get("line-range", []))[:RANGES_MAX] or [":"]
    return [part for text in texts for read in reads for part in select_all([read], option_lines(text, ":"))]


def _diff(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    options, operands = _options(words, valued="UCxIW")
    return [] if "r" in options else blur(shell.files(operands, stdin))


def _shuffle(_shell: ShellState, _words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    """Simulate a filter that prints the incoming stream in another order or form. Its lines become unknown."""
    return blur(stdin or ())


def _tee(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    return [*(stdin or ()), *shell.steps_at("edit", _options(words)[1])]


def _list(
    shell: ShellState, words: list[ShellToken], _stdin: _Stdin, *, valued: str = "", patterns: int = 0
) -> Sequence[_Event]:
    return shell.steps_at("list", _options(words, valued=valued)[1][patterns:] or [ShellToken(".")])


def _find(shell: ShellState, words: list[ShellToken], _stdin: _Stdin) -> Sequence[_Event]:
    operands = [word for word in words if word.text not in ("-L", "-H", "-P")]
    tests = (index for index, word in enumerate(operands) if word.text.startswith(("-", "(", "!")))
    return shell.steps_at("list", operands[: next(tests, None)] or [ShellToken(".")])


def _cd(shell: ShellState, words: list[ShellToken], _stdin: _Stdin) -> Sequence[_Event]:
    operands = _options(words)[1] or [ShellToken("~")]
    shell.directory = None if operands[0].text == "-" else shell.path(operands[0])
    return []


def _script(shell: ShellState, words: list[ShellToken], _stdin: _Stdin) -> Sequence[_Event]:
    """Simulate the script in `bash -lc '…'`."""
    options, operands = _options(words, valued="oO", permute=False)
    if "c" not in options or not operands or not operands[0].literal or shell.nesting == NESTING_MAX:
        return []
    directory = shell.directory
    shell.nesting += 1
    events = shell.run(operands[0].text)
    shell.nesting -= 1
    shell.directory = directory
    return events


_CONTEXT_LONG = ("context", "after-context", "before-context", "max-count", "regexp", "file", "color")
_GREP_LONG = (*_CONTEXT_LONG, "include", "exclude", "exclude-dir")
_RG_LONG = (*_CONTEXT_LONG, "glob", "iglob", "type", "type-not", "max-depth", "sort", "replace", "threads")
_COUNTS = ("c", "count", "q", "quiet", "L", "files-without-match")


def _grep(
    shell: ShellState,
    words: list[ShellToken],
    stdin: _Stdin,
    *,
    valued: str = "ABCmefdD",
    long: Collection[str] = _GREP_LONG,
    recursive: bool = False,
    chosen: bool = False,  # xargs chose the files, so they are unknown
) -> Sequence[_Event]:
    options, operands = _options(words, valued=valued, long=long)
    if "files" in options:  # rg --files
        return shell.steps_at("list", operands or [ShellToken(".")])
    patterns = options.get("e", []) + options.get("regexp", [])
    if not patterns and options.keys().isdisjoint(("f", "file")):
        patterns, operands = [word.text for word in operands[:1]], operands[1:]
        if not patterns:
            return []
    if (recursive or not options.keys().isdisjoint(("r", "R", "recursive"))) and stdin is None:
        operands = operands or [ShellToken(".")]
    paths = [shell.path(word) for word in operands]
    lines = [ShellStep(operation="read", path=path, start_line=1) for path in paths if path is not None]
    if chosen or None in paths:
        lines = []
    elif not operands:
        lines = stdin or []
        if not lines:
            return []
    pattern = patterns[0] if patterns else None
    places = [msgspec.structs.replace(read, operation="search", pattern=pattern) for read in blur(lines)]
    search = ShellSearch(
        places=list(dict.fromkeys(places)),
        pattern=pattern,
        directory=shell.directory,
        lines=[] if [word.text for word in operands] == ["."] else lines,
        names_only=not options.keys().isdisjoint(("l", "files-with-matches")),
    )
    return [search] if options.keys().isdisjoint(_COUNTS) else search.places


_rg = partial(_grep, valued="ABCmefgtTjMrdE", long=_RG_LONG, recursive=True)


def _xargs(shell: ShellState, words: list[ShellToken], _stdin: _Stdin) -> Sequence[_Event]:
    """Simulate `xargs`. Its input is unknown, so only a search counts, because its output contains the file names."""
    command = _options(words, valued="nILPdEas", permute=False)[1]
    if _program(command) == "rg":
        return _rg(shell, command[1:], None, chosen=True)
    return _grep(shell, command[1:], None, chosen=True) if _program(command) == "grep" else []


def _git(shell: ShellState, words: list[ShellToken], stdin: _Stdin) -> Sequence[_Event]:
    options, operands = _options(words, valued="Cc", permute=False)
    known = _GIT.get(operands[0].text) if operands else None
    directory = shell.directory
    for text in options.get("C", []):
        shell.directory = shell.path(ShellToken(text, literal="$" not in text))
    events = known(shell, operands[1:], stdin) if known else []
    shell.directory = directory
    return events


def _git_show(shell: ShellState, words: list[ShellToken], _stdin: _Stdin) -> Sequence[_Event]:
    reads: list[ShellStep] = []
    for word in _options(words)[1]:
        revision, _colon, name = word.text.partition(":")
        # Git resolves a path from the top of the repository, unless it begins with a dot.
        path = shell.path(ShellToken(name)) if name.startswith(("./", "../")) else join_path("", name)
        if word.literal and name and not name.endswith("/") and path is not None:
            reads.append(ShellStep(operation="read", path=path, start_line=1, revision=revision or ":0"))
    return reads


def _git_blame(shell: ShellState, words: list[ShellToken], _stdin: _Stdin) -> Sequence[_Event]:
    options, operands = _options(words, valued="LS")
    reads = shell.files(operands[-1:], None)
    if len(operands) > 1:  # the known length is that of the working copy, not of this revision
        reads = [msgspec.structs.replace(read, revision=operands[0].text, end_line=None) for read in reads]
    return [read for text in options.get("L", [","]) for read in select_all(reads, option_lines(text, ","))]


_Program = Callable[[ShellState, list[ShellToken], _Stdin], Sequence[_Event]]
_GIT: dict[str, _Program] = {
    "blame": _git_blame,
    "grep": partial(_grep, recursive=True),
    "ls-files": _list,
    "show": _git_show,
}
_PROGRAMS: dict[str, _Program] = {
    **dict.fromkeys(("cat", "less", "more"), _cat),
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    **dict.fromkeys(("bat", "batcat"), _bat),
    **dict.fromkeys(("cd", "pushd"), _cd),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _grep),
    **dict.fromkeys(("sort", "uniq", "tac", "xxd", "od", "hexdump", "column", "fold", "jq"), _shuffle),
    **dict.fromkeys(_SHELLS, _script),
    "cut": partial(_cat, valued="dfcb"),
    "diff": _diff,
    "fd": partial(_list, valued="etEdcSjxX", patterns=1),
    "find": _find,
    "git": _git,
    "head": partial(_head_or_tail, take=top),
    "ls": partial(_list, valued="IwT"),
    "nl": partial(_cat, valued="bnwsvifhdl"),
    "perl": _perl,
    "rg": _rg,
    "sed": _sed,
    "tail": partial(_head_or_tail, take=bottom),
    "tee": _tee,
    "tree": partial(_list, valued="LIPo"),
    "xargs": _xargs,
}
_COMPLAINTS = tuple(f"{program}: " for program in (*_PROGRAMS, "/bin/bash", "/bin/sh", "fatal"))
