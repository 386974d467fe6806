"""The `Client` entry of OpenCode. mica is installed as a JavaScript plugin, which calls the hook, and an MCP entry."""

from __future__ import annotations

import json
from pathlib import Path

from mica.clients import plugin
from mica.clients.client import Client, HookPayload
from mica.clients.installation import ConfigEntry, Installation, Machine, OwnedFile, UserHome
from mica.clients.opencode import tools, transcript

PLUGIN = """// Written by `mica install`, removed by `mica uninstall`. It hands events to mica's hook, and never fails.
import { existsSync } from "node:fs";
import { spawn } from "node:child_process";

const python = %(python)s;
const hook = %(hook)s;
const launcher = %(launcher)s;
const forwarded = ["session.idle", "session.compacted", "session.error"];
const starting = new Map();  // the text for each new session, until its first message

const send = (directory, k, input, output) => new Promise((done) => {
  try {
    if (![python, hook, launcher].every(existsSync)) return done("");
    const child = spawn(python, ["-I", "-S", launcher, "opencode", k],
      { cwd: directory, stdio: ["pipe", "pipe", "ignore"], timeout: 5000 });
    let text = "";
    child.on("error", () => done(""));
    child.on("close", () => done(text));
    child.stdout.on("data", (part) => { text += part; });
    child.stdin.on("error", () => {});
    child.stdin.end(JSON.stringify({ k, directory, input, output }));
  } catch { done(""); }
});

export const Mica = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const first = await (starting.get(input.sessionID) ?? "");
    starting.delete(input.sessionID);
    const text = [first, await send(directory, "chat.message", input, output)].filter(Boolean).join("\\n");
    if (text) output.parts.push({ id: "prt_" + crypto.randomUUID(), sessionID: input.sessionID,
      messageID: output.message.id, type: "text", synthetic: true, text });
  },
  "tool.execute.after": async (input, output) => { await send(directory, "tool.execute.after", input, output); },
  "command.execute.before": async (input) => { await send(directory, "command.execute.before", input); },
  event: async ({ event }) => {
    if (event.type === "session.created")
      starting.set(event.properties?.info?.id, send(directory, event.type, event));
    else if (forwarded.includes(event.type)) await send(directory, "event", event);
  },
});
"""


def _install(machine: Machine) -> Installation:
    environment = machine.user.environment
    base = machine.user.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    folder = Path(environment.get("OPENCODE_CONFIG_DIR") or base)
    constants = {"python": machine.python, "hook": str(machine.hook), "launcher": str(machine.launcher)}
    code = PLUGIN % {name: json.dumps(value) for name, value in constants.items()}
    server = {"type": "local", "command": list(machine.server_words), "enabled": True}
    commands = tuple(
        OwnedFile(
            path=folder / "commands" / plugin.NAME / f"{name}.md",
            content=f"---\ndescription: {description}\n---\n\n{text}\n",
        )
        for name, (description, text) in plugin.SKILLS.items()
    )
    return Installation(
        name=CLIENT.name,
        title=CLIENT.title,
        folder=folder,
        programs=("opencode",),
        files=(OwnedFile(path=folder / "plugins" / "mica.js", content=code), *commands),
        entries=(ConfigEntry(path=_settings(machine.user, folder), keys=("mcp", "mica"), value=server),),
        notes=("OpenCode loads it in the next session.",),
    )


def _settings(user: UserHome, folder: Path) -> Path:
    if path := user.environment.get("OPENCODE_CONFIG"):
        return Path(path)
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"


def _database(user: UserHome) -> Path:
    folder = user.folder("XDG_DATA_HOME", ".local", "share") / "opencode"
    return folder / (user.environment.get("OPENCODE_DB") or "opencode.db")


def _unwrap(event: str, payload: HookPayload) -> tuple[str, HookPayload]:
    """Return the name and the fields of an OpenCode event, taken from what mica's JavaScript plugin sent.

    The plugin sends the `input` and `output` of one of its functions. For the function `event`, `input` is the event
    itself.
    """
    plugin_input, output = payload.get("input"), payload.get("output")
    fields: HookPayload = dict(plugin_input) if isinstance(plugin_input, dict) else dict(payload)
    if event == "event" or ("type" in fields and "properties" in fields):
        kind, properties = fields.get("type"), fields.get("properties")
        event = kind if isinstance(kind, str) and kind else event
        fields = dict(properties) if isinstance(properties, dict) else {}
        if isinstance(info := fields.get("info"), dict):
            fields |= {"directory": info.get("directory"), "session_id": info.get("id")}
    if output is not None:
        fields["output"] = output
    return event, fields


CLIENT = Client(
    name=transcript.NAME,
    title="OpenCode",
    install=_install,
    reader=transcript,
    transcripts=_database,
    is_database=True,
    drafts=tools.drafts,
    typed=transcript.PROMPTS.typed,
    unwrap=_unwrap,
)
