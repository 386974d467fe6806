"""Connects mica to coding agents and disconnects it again. Changes are planned first, shown, and then written.

Two kinds of files are involved. mica updates and removes files that it created; if such a file was edited by hand, it
is left unchanged and reported. In settings files of the user, mica adds entries. Uninstalling restores such a file byte
for byte if it was not changed after mica wrote it; otherwise only mica's entries are removed. A record in mica's data
folder lists everything that was written.
"""

from __future__ import annotations

import difflib
import os
import py_compile
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path

import msgspec

from mica import hook, redact, spool_news, tokens
from mica.clients import jsonc, toml_tables
from mica.clients.installation import ConfigEntry, Installation, OwnedFile
from mica.errors import InvalidInput
from mica.private_files import make_folder, make_private_folder, replace_private

RECORD = "installed.json"
BACKUPS = "backups"
FILE_BYTES_MAX = 4 * 2**20  # a larger file is not a settings file
HOOK_MODULES = {
    "mica_hook": hook.__file__,
    "mica_redact": redact.__file__,
    "mica_spool_news": spool_news.__file__,
    "mica_tokens": tokens.__file__,
}
LAUNCHER = """#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
from mica_hook import main
main()
"""


class WrittenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A settings entry that mica wrote. `known` is how many of its nested keys, outermost first, existed before."""

    entry: ConfigEntry
    known: int


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """How to restore a user's file: a backup from before mica's first change, and a digest of mica's last version."""

    backup: str | None  # None: the file did not exist
    left: str  # the digest of the file as mica last wrote it; empty if another program changed it in between


class InstalledParts(msgspec.Struct, kw_only=True):
    """The files and entries that were written for one client."""

    files: dict[str, str] = {}  # digests by path
    entries: list[WrittenEntry] = []


class InstallRecord(msgspec.Struct, kw_only=True):
    """Everything that mica has written for clients on this machine; saved as `installed.json`."""

    clients: dict[str, InstalledParts] = {}
    originals: dict[str, Original] = {}
    folders: list[str] = []  # created by installing


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file before and after a change; None means that the file does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None
    is_ours: bool  # True for a file that mica created, False for a settings file of the user
    needs_backup: bool = False  # it has content of the user that no earlier backup has

    @property
    def diff(self) -> str:
        """The change as a unified diff, to show to the user."""
        old, new = (_lines(side) for side in (self.before, self.after))
        old_name, new_name = (os.devnull if side is None else str(self.path) for side in (self.before, self.after))
        lines = difflib.unified_diff(old, new, old_name, new_name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class InstallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The file changes to make, and the record to save with them."""

    record: InstallRecord  # after the changes
    changes: tuple[FileChange, ...] = ()
    kept: tuple[str, ...] = ()  # a sentence for each part that stays because it was edited by hand
    problems: dict[str, str] = {}  # by client: why nothing is changed for it
    obsolete: tuple[Path, ...] = ()  # backups of files that are restored


def read_record(data: Path) -> InstallRecord:
    """Return the record of what mica has written; empty if nothing is installed. Raises InvalidInput if unreadable."""
    path = data / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=InstallRecord, dec_hook=_as_path)
    except FileNotFoundError:
        return InstallRecord()
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}; move it away and install again") from error


def install(clients: Iterable[Installation], record: InstallRecord, *, data: Path) -> InstallPlan:
    """Plan to connect these clients to mica, or to update their files and entries. Nothing is written yet."""
    builder = _PlanBuilder(record, data)
    for client in clients:
        builder.attempt(builder.put, client)
    return builder.plan()


def uninstall(clients: Iterable[Installation], record: InstallRecord, *, data: Path) -> InstallPlan:
    """Plan to remove everything that mica wrote for these clients. Nothing is written yet."""
    builder = _PlanBuilder(record, data)
    for client in clients:
        builder.attempt(builder.remove, client)
    return builder.plan()


def apply(plan: InstallPlan, *, data: Path) -> None:
    """Write the changes of a plan, with backups of the user's files, and remove backups that are no longer needed.

    Raises InvalidInput if a file has changed since it was planned; then nothing is written.
    """
    for change in plan.changes:
        if _read(change.path) != change.before:
            raise InvalidInput(f"{change.path} has changed since it was shown; nothing was written, start again")
    record = plan.record
    for change in plan.changes:
        if change.before is not None and change.needs_backup:
            _write(data / BACKUPS / backup_name(change.path, change.before), change.before, is_private=True)
    _record_new_folders(plan.changes, record)
    _write(data / RECORD, msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=2), is_private=True)
    for change in plan.changes:
        if change.after is None:
            change.path.unlink(missing_ok=True)
        else:
            _write(change.path, change.after, is_private=change.path.is_relative_to(data))
    if not any(parts.files or parts.entries for parts in record.clients.values()):
        (data / RECORD).unlink(missing_ok=True)
    for backup in plan.obsolete:
        backup.unlink(missing_ok=True)
    with suppress(OSError):  # not empty, or never made
        (data / BACKUPS).rmdir()
    for folder in sorted(record.folders, key=len, reverse=True):
        with suppress(OSError):  # not empty, or gone
            Path(folder).rmdir()


def write_launcher(folder: Path, *, python: str = sys.executable) -> Path:
    """Write the program `mica-hook` and the modules it imports into a folder; returns the path of `mica-hook`.

    The program does not import mica itself. Most of its code is in modules, because Python compiles a module only once
    but a program at every start; this halves the time of a hook.
    """
    folder = folder.absolute()
    make_private_folder(folder / "__pycache__")
    make_private_folder(folder)
    for name, source in HOOK_MODULES.items():
        module = folder / f"{name}.py"
        replace_private(module, Path(source).read_bytes())
        if python == sys.executable:  # another interpreter compiles it at its first start
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(module), doraise=True, invalidation_mode=mode)
    launcher = folder / "mica-hook"
    replace_private(launcher, LAUNCHER.format(python=python, folder=str(folder)).encode())
    launcher.chmod(0o700)
    return launcher


def launcher_changes(folder: Path, *, python: str = sys.executable) -> list[Path]:
    """Return the files that `write_launcher` would create or change."""
    folder = folder.absolute()
    changed: list[Path] = []
    for name, source in HOOK_MODULES.items():
        module = folder / f"{name}.py"
        compiled = Path(cache_from_source(str(module)))
        is_new = _read(module) != _read(Path(source))
        changed += [module] if is_new else []
        changed += [compiled] if python == sys.executable and (is_new or not compiled.exists()) else []
    launcher = folder / "mica-hook"
    is_new = _read(launcher) != LAUNCHER.format(python=python, folder=str(folder)).encode()
    return [*([launcher] if is_new else []), *changed]


def backup_name(path: Path, content: bytes) -> str:
    return f"{path.name}.{_digest(content)[:16]}"


class _PlanBuilder:
    def __init__(self, record: InstallRecord, data: Path) -> None:
        self._record = _copy(record)
        self._data = data
        self._before: dict[Path, bytes | None] = {}
        self._after: dict[Path, bytes | None] = {}
        self._edited: set[Path] = set()  # files of the user
        self._kept: list[str] = []
        self._problems: dict[str, str] = {}

    def attempt(self, step: Callable[[Installation], None], client: Installation) -> None:
        """Plan all changes of a client by calling `step`. If one is impossible, plan none, and note why."""
        after, record, kept = dict(self._after), _copy(self._record), list(self._kept)
        try:
            step(client)
        except InvalidInput as error:
            self._after, self._record, self._kept = after, record, kept
            self._problems[client.name] = str(error)

    def put(self, client: Installation) -> None:
        was, parts = self._record.clients.get(client.name, InstalledParts()), InstalledParts()
        for file in client.files:
            self._put_file(file, parts, was)
        self._record.clients[client.name] = parts
        for path, digest in was.files.items():
            if not self._is_needed(path):  # written by an older mica
                self._remove_file(Path(path), digest)
        for entry in client.entries:
            self._put_entry(entry, parts, was)

    def remove(self, client: Installation) -> None:
        was = self._record.clients.pop(client.name, InstalledParts())
        for path, digest in was.files.items():
            if not self._is_needed(path):
                self._remove_file(Path(path), digest)
        for changed in dict.fromkeys(put.entry.path for put in was.entries):
            self._remove_entries(changed, [put for put in was.entries if put.entry.path == changed])
        for entry in client.leftovers if was.entries else ():
            text = self._text(entry.path)
            if text is not None and _value(text, entry) is not jsonc.MISSING:
                self._after[entry.path] = _without(text, entry, known=len(entry.keys)).encode()

    def plan(self) -> InstallPlan:
        changes = tuple(
            FileChange(
                path=path,
                before=(before := self._before[path]),
                after=after,
                is_ours=path not in self._edited,
                needs_backup=path in self._edited and before is not None and not self._is_as_left(path, before),
            )
            for path, after in self._after.items()
            if after != self._before[path]
        )
        backups = [self._remember(change) for change in changes if not change.is_ours]
        needed = {original.backup for original in self._record.originals.values()}
        obsolete = tuple(Path(name) for name in backups if name is not None and name not in needed)
        return InstallPlan(
            record=self._record, changes=changes, kept=tuple(self._kept), problems=self._problems, obsolete=obsolete
        )

    def _is_as_left(self, path: Path, content: bytes) -> bool:
        original = self._record.originals.get(str(path))
        return original is not None and original.left == _digest(content)

    def _remember(self, change: FileChange) -> str | None:
        """Update the record of how to restore a user's file after this change.

        Returns the file's backup if the change restores it and no entry of mica remains in the file, else None.
        """
        path, originals = str(change.path), self._record.originals
        entries = (put.entry for parts in self._record.clients.values() for put in parts.entries)
        before = originals.pop(path, None)
        if not any(str(entry.path) == path for entry in entries):
            is_restored = before is not None and before.backup and change.after == _read(Path(before.backup))
            return before.backup if before is not None and is_restored else None
        left = _digest(change.after or b"")
        if before is None:
            name = None if change.before is None else backup_name(change.path, change.before)
            originals[path] = Original(backup=name and str(self._data / BACKUPS / name), left=left)
        else:
            is_as_left = change.before is not None and before.left == _digest(change.before)
            originals[path] = Original(backup=before.backup, left=left if is_as_left else "")
        return None

    def _is_needed(self, path: str) -> bool:
        return any(path in parts.files for parts in self._record.clients.values())

    # -- Files of mica -----------------------------------------------------------------------------------------

    def _put_file(self, file: OwnedFile, parts: InstalledParts, was: InstalledParts) -> None:
        content = file.content.encode()
        found = self._planned_content(file.path)
        known = {other.files.get(str(file.path)) for other in self._record.clients.values()}
        if found is not None and found != content and _digest(found) not in known:
            self._kept.append(f"{file.path} is not as mica wrote it; it stays as it is")
            parts.files |= {path: digest for path, digest in was.files.items() if path == str(file.path)}
            return
        parts.files[str(file.path)] = _digest(content)
        self._after[file.path] = content

    def _remove_file(self, path: Path, digest: str) -> None:
        found = self._planned_content(path)
        if found is None:
            return
        if _digest(found) != digest:
            self._kept.append(f"{path} is not as mica wrote it; it stays as it is")
            return
        self._after[path] = None

    # -- Entries in files of the user ---------------------------------------------------------------------------

    def _put_entry(self, entry: ConfigEntry, parts: InstalledParts, was: InstalledParts) -> None:
        text = self._text(entry.path) or ""
        mine = [put for put in was.entries if _is_same_place(put.entry, entry)]
        found = _value(text, entry) if text.strip() else jsonc.MISSING
        if found is not jsonc.MISSING and found == entry.value:
            parts.entries += mine  # an entry that the user wrote before is not recorded
            return
        if found is not jsonc.MISSING:
            if not any(found == put.entry.value for put in mine):
                self._kept.append(f"{entry.name} in {entry.path} was not written by mica; it stays as it is")
                parts.entries += mine  # reported again by an uninstall
                return
            if entry.format == "toml":
                text = _without(text, entry, known=0)
        elif entry.is_item:
            for put in mine:  # the list has an older version of the entry
                if text.strip() and _value(text, put.entry) is not jsonc.MISSING:
                    text = _without(text, put.entry, known=put.known)
        known = mine[0].known if mine else _depth(text, entry)
        try:
            text = _with(text, entry)
        except InvalidInput as error:
            raise InvalidInput(f"{entry.path}: {entry.name}: {error}; it stays as it is") from error
        self._after[entry.path] = text.encode()
        parts.entries.append(WrittenEntry(entry=entry, known=known))

    def _remove_entries(self, path: Path, puts: Sequence[WrittenEntry]) -> None:
        self._edited.add(path)
        found = self._planned_content(path)
        if found is None:
            return
        original = self._record.originals.get(str(path))
        if original is not None and original.left == _digest(found):
            before = None if original.backup is None else _read(Path(original.backup))
            if before is not None or original.backup is None:
                self._after[path] = before
                return
        text = self._text(path) or ""
        for put in reversed(puts):
            if put.entry.is_frame and not _is_alone(text, put.entry):
                continue  # other entries need it
            value = _value(text, put.entry) if text.strip() else jsonc.MISSING
            if value is jsonc.MISSING:
                continue
            if value != put.entry.value:
                self._kept.append(f"{put.entry.name} in {path} was changed by hand; it stays as it is")
                continue
            text = _without(text, put.entry, known=put.known)
        self._after[path] = text.encode()
        if original is not None and original.backup is None and text.strip() in ("", "{}"):
            self._after[path] = None

    # -- Contents, with the changes planned so far ---------------------------------------------------------------

    def _planned_content(self, path: Path) -> bytes | None:
        if path not in self._before:
            self._before[path] = _read(path)
        return self._after.get(path, self._before[path])

    def _text(self, path: Path) -> str | None:
        """Return the text of a user's file as planned so far; None if there is no such file.

        Raises InvalidInput if the text is not valid TOML (for the suffix `.toml`) or JSON.
        """
        self._edited.add(path)
        found = self._planned_content(path)
        if found is None:
            return None
        try:
            text = found.decode()
            if text.strip():
                toml_tables.table_at(text, ()) if path.suffix == ".toml" else jsonc.parse(text)
        except (UnicodeDecodeError, InvalidInput) as error:
            raise InvalidInput(
                f"{path} cannot be read ({error}); it stays as it is; repair it and start again"
            ) from error
        return text


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").splitlines(keepends=True)


def _is_same_place(one: ConfigEntry, other: ConfigEntry) -> bool:
    return (one.path, one.keys, one.is_item) == (other.path, other.keys, other.is_item)


def _value(text: str | None, entry: ConfigEntry) -> object:
    """Return the value, or the list item, that is now in the place of an entry; MISSING if there is none."""
    if not text or not text.strip():
        return jsonc.MISSING
    if entry.format == "toml":
        return toml_tables.table_at(text, entry.keys)
    found = jsonc.value_at(text, entry.keys)
    if not entry.is_item or found is jsonc.MISSING:
        return found
    return entry.value if isinstance(found, list) and entry.value in found else jsonc.MISSING


def _with(text: str, entry: ConfigEntry) -> str:
    if entry.format == "toml":
        return toml_tables.with_table(text, entry.keys, msgspec.convert(entry.value, dict[str, str | bool]))
    put = jsonc.with_item if entry.is_item else jsonc.with_value
    return put(text, entry.keys, entry.value)


def _without(text: str, entry: ConfigEntry, *, known: int) -> str:
    if entry.format == "toml":
        return toml_tables.without_table(text, entry.keys)
    if entry.is_item:
        return jsonc.without_item(text, entry.keys, entry.value, known=known)
    return jsonc.without_value(text, entry.keys, known=min(known, len(entry.keys) - 1))


def _is_alone(text: str, entry: ConfigEntry) -> bool:
    settings = jsonc.value_at(text, ()) if text.strip() else {}
    return isinstance(settings, dict) and set(settings) <= set(entry.keys[:1])


def _depth(text: str, entry: ConfigEntry) -> int:
    return jsonc.depth_of(text, entry.keys) if entry.format == "json" and text.strip() else 0


def _read(path: Path) -> bytes | None:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise InvalidInput(f"{path} is too large for a settings file; it stays as it is")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error


def _record_new_folders(changes: Iterable[FileChange], record: InstallRecord) -> None:
    known = set(record.folders)
    for change in changes:
        if change.after is not None:
            for folder in change.path.parents:
                if folder.exists():
                    break
                known.add(str(folder))
    record.folders = sorted(known)


def _write(path: Path, content: bytes, *, is_private: bool) -> None:
    """Write a file atomically. An existing file keeps its permissions. For a symbolic link, its target is written."""
    try:
        path = path.resolve()
        make_folder(path.parent)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600 if is_private else 0o644
        number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
            Path(temporary).chmod(mode)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error


def _copy(record: InstallRecord) -> InstallRecord:
    return msgspec.json.decode(msgspec.json.encode(record, enc_hook=str), type=InstallRecord, dec_hook=_as_path)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _as_path(kind: type, value: object) -> object:
    return value if kind is object else Path(str(value))
