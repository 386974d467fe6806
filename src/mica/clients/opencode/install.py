"""OpenCode: a small plugin in JavaScript that hands its events to our hook, and an MCP entry in its settings."""

from __future__ import annotations

import json
from pathlib import Path

from mica.clients.installation import Client, Entry, File, Machine
from mica.clients.plugin import NAME, SKILLS

PLUGIN = """// Written by `mica install`, removed by `mica uninstall`. It hands events to mica's hook, and never fails.
import { existsSync } from "node:fs";
import { spawn } from "node:child_process";

const python = %(python)s;
const hook = %(hook)s;
const launcher = %(launcher)s;
const kept = ["session.idle", "session.compacted", "session.error"];
const starting = new Map();  // what each new session is told, until its first message

const tell = (directory, k, input, output) => new Promise((done) => {
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
    const text = [first, await tell(directory, "chat.message", input, output)].filter(Boolean).join("\\n");
    if (text) output.parts.push({ id: "prt_" + crypto.randomUUID(), sessionID: input.sessionID,
      messageID: output.message.id, type: "text", synthetic: true, text });
  },
  "tool.execute.after": async (input, output) => { await tell(directory, "tool.execute.after", input, output); },
  "command.execute.before": async (input) => { await tell(directory, "command.execute.before", input); },
  event: async ({ event }) => {
    if (event.type === "session.created")
      starting.set(event.properties?.info?.id, tell(directory, event.type, event));
    else if (kept.includes(event.type)) await tell(directory, "event", event);
  },
});
"""


def client(machine: Machine) -> Client:
    base = machine.folder("XDG_CONFIG_HOME", ".config") / "opencode"
    folder = Path(machine.environment.get("OPENCODE_CONFIG_DIR") or base)
    constants = {"python": machine.python, "hook": str(machine.hook), "launcher": str(machine.launcher)}
    code = PLUGIN % {name: json.dumps(value) for name, value in constants.items()}
    server = {"type": "local", "command": list(machine.server_words), "enabled": True}
    commands = tuple(
        File(
            path=folder / "commands" / NAME / f"{name}.md", content=f"---\ndescription: {description}\n---\n\n{text}\n"
        )
        for name, (description, text) in SKILLS.items()
    )
    return Client(
        name="opencode",
        title="OpenCode",
        folder=folder,
        programs=("opencode",),
        files=(File(path=folder / "plugins" / "mica.js", content=code), *commands),
        entries=(Entry(path=_settings(machine, folder), keys=("mcp", "mica"), value=server),),
        notes=("OpenCode loads it in the next session.",),
    )


def _settings(machine: Machine, folder: Path) -> Path:
    if named := machine.environment.get("OPENCODE_CONFIG"):
        return Path(named)
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"
