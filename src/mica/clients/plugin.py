"""The plugin that Claude Code, Codex and Copilot CLI load, in Claude's plugin format, and the texts of its skills."""

from __future__ import annotations

from pathlib import Path

from mica.clients.installation import ConfigEntry, Machine, OwnedFile, document

NAME = "nav"  # so that its skills are /nav:handoff, /nav:help …
MARKETPLACE = "mica"
ID = f"{NAME}@{MARKETPLACE}"
ABOUT = "Memory: what earlier sessions learned, and which files they worked on"

# Seconds. At the end of a session Codex allows one and Claude Code one and a half, regardless of the limit here.
TIMEOUTS_S = {
    "SessionStart": 5,
    "UserPromptSubmit": 5,
    "PostToolUse": 10,
    "PostToolUseFailure": 10,
    "PreCompact": 5,
    "PostCompact": 5,
    "Stop": 10,
    "SessionEnd": 1,
}
TOOLS = "Read|Edit|Write|MultiEdit|NotebookEdit|Bash|Grep|Glob|Skill|Agent|apply_patch"

HANDOFF = """Hand this session over.

First call `mark` for each finding, decision or open end that is not recorded yet, and note the number it answers with.
Then call `handoff` with three to seven statements that say what this session meant, each with the numbers of the
marks it rests on. Then tell the user in two sentences where the work stands and what comes next."""

EXPLORE = """Find where to look for this: $ARGUMENTS

Call `navigate` with it. Show the first three files with their lines and the reason for each, and open those that fit,
only at the lines named. Where nothing is offered, search the code as usual: it is learned from."""

HELP = """Tell the user in a few lines what mica does here:

- It observes which files and lines each session needs, and offers them to the next: `/nav:explore TASK`.
- It keeps what was learned: `mark` while working, `/nav:handoff` at the end; every session starts with a brief of it.
- Trails that proved useful become commands `/nav:<name>`; `mica trails list` shows them.
- In a terminal: `mica events overview`, `mica search WORDS`, `mica why NUMBER`, `mica upkeep hooks off`,
  `mica uninstall`."""

SKILLS = {
    "explore": ("Where to look for something in this project, from what earlier sessions needed", EXPLORE),
    "handoff": ("Record what this session meant, for the next one", HANDOFF),
    "help": ("What mica remembers in this project, and how to use it", HELP),
}

README = """# mica for coding agents

mica observes which files and lines a coding agent needs for which task, keeps what was learned with its sources, and
hands each new session a short brief. This plugin holds its hooks, its MCP server and three skills: `/nav:explore`,
`/nav:handoff` and `/nav:help`. It works on this machine only, needs no key, and sends nothing anywhere.

It was written by `mica install`; `mica uninstall` removes it. To install it again by hand:
`claude plugin marketplace add` with the folder above this one, then `claude plugin install nav@mica`.
"""


def marketplace(machine: Machine) -> tuple[OwnedFile, ...]:
    """Return the files of mica's marketplace folder, which contains the plugin."""
    listed = {"name": NAME, "source": f"./{NAME}", "description": ABOUT}
    listing = {"name": MARKETPLACE, "owner": {"name": "mica"}, "description": ABOUT, "plugins": [listed]}
    manifest = OwnedFile(path=machine.plugin / ".claude-plugin" / "marketplace.json", content=document(listing))
    # Without `cwd` Copilot CLI starts a plugin's server in the plugin's own folder; Claude Code ignores it.
    return manifest, *plugin_files(machine, machine.plugin / NAME, server={**machine.server, "cwd": "."})


def declare(machine: Machine, settings: Path) -> tuple[ConfigEntry, ...]:
    """Return the two settings entries by which Claude Code and Copilot CLI find the plugin: marketplace and plugin."""
    source = {"source": {"source": "directory", "path": str(machine.plugin)}}
    return (
        ConfigEntry(path=settings, keys=("extraKnownMarketplaces", MARKETPLACE), value=source),
        ConfigEntry(path=settings, keys=("enabledPlugins", ID), value=True),
    )


def plugin_files(machine: Machine, folder: Path, *, server: dict[str, object]) -> tuple[OwnedFile, ...]:
    """Return the files of the plugin, to be written into `folder`. `server` is its MCP server entry."""
    manifest = {
        "name": NAME,
        "displayName": "mica",
        "version": machine.version,
        "description": ABOUT,
        "author": {"name": "mica contributors"},
        "license": "MIT",
        "keywords": ["memory", "navigation"],
    }
    written = {
        ".claude-plugin/plugin.json": document(manifest),
        "hooks/hooks.json": document(
            {"description": "Record what the agent does, and show it what it needs to know", "hooks": hooks(machine)}
        ),
        ".mcp.json": document({"mcpServers": {"mica": server}}),
        "README.md": README,
        **{f"skills/{name}/SKILL.md": skill(name, *parts) for name, parts in SKILLS.items()},
    }
    return tuple(OwnedFile(path=folder / name, content=content) for name, content in written.items())


def hooks(machine: Machine) -> dict[str, object]:
    """Return the hooks in a form that all three clients accept: shell commands, without `args` or `async`.

    The commands do not include the client's name: the hook detects the client from its environment.
    """
    entries: dict[str, object] = {}
    for event, timeout_s in TIMEOUTS_S.items():
        command = {"type": "command", "command": machine.hook_command(event), "timeout": timeout_s}
        matcher = {"matcher": TOOLS} if event.startswith("PostToolUse") else {}
        entries[event] = [{**matcher, "hooks": [command]}]
    if machine.read_gate:
        command = {"type": "command", "command": machine.hook_command("PreToolUse"), "timeout": 5}
        entries["PreToolUse"] = [{"matcher": "Read", "hooks": [command]}]
    return entries


def skill(name: str, description: str, text: str) -> str:
    """Return the text of a skill file. Only the user can start the skill; until then it uses no tokens of the model."""
    return f"---\nname: {name}\ndescription: {description}\ndisable-model-invocation: true\n---\n\n{text}\n"
