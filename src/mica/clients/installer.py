"""Installing into coding agents and out of them again: what would change is planned first, shown, and then written.

Files of ours are written, kept current and removed; one that somebody changed by hand stays, and is named. Files of the
user get entries, and are restored to the byte when nobody else has changed them since; where somebody has, only our
entries are taken out. What was done is kept in a record beside mica's data.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from mica.clients import jsonc
from mica.clients import toml_tables as tables
from mica.clients.installation import Client, Entry, File
from mica.errors import InvalidInput

RECORD = "installed.json"
BACKUPS = "backups"
FILE_BYTES_MAX = 4 * 2**20  # of a settings file; a larger one is none


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it was written, and how many of its keys were there before."""

    entry: Entry
    known: int


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A user's file before we changed it, and as we left it."""

    backup: str | None  # None: there was no such file
    left: str  # its digest; empty once somebody else has changed it in between


class Given(msgspec.Struct, kw_only=True):
    """What a client was given."""

    files: dict[str, str] = {}  # digests by path
    entries: list[Put] = []


class Record(msgspec.Struct, kw_only=True):
    """What is installed."""

    clients: dict[str, Given] = {}
    originals: dict[str, Original] = {}
    folders: list[str] = []  # that were made for it


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A file before and after; None where there is none."""

    path: Path
    before: bytes | None
    after: bytes | None
    is_ours: bool

    @property
    def diff(self) -> str:
        old, new = (_lines(side) for side in (self.before, self.after))
        old_name, new_name = (os.devnull if side is None else str(self.path) for side in (self.before, self.after))
        lines = difflib.unified_diff(old, new, old_name, new_name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done."""

    record: Record  # as it will be
    changes: tuple[Change, ...] = ()
    kept: tuple[str, ...] = ()  # what stays because somebody changed it, a sentence each
    problems: dict[str, str] = {}  # clients for which nothing is done, and why


def read_record(data: Path) -> Record:
    """What is installed, as it was written down. Raises InvalidInput when that cannot be read."""
    path = data / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record, dec_hook=_as_path)
    except FileNotFoundError:
        return Record()
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}; move it away to install anew") from error


def install(clients: Iterable[Client], record: Record, *, data: Path) -> Plan:
    """What giving clients their files and entries would change, or bringing them up to date."""
    planning = _Planning(record, data)
    for client in clients:
        planning.attempt(planning.put, client)
    return planning.planned()


def uninstall(clients: Iterable[Client], record: Record, *, data: Path) -> Plan:
    """What taking them away again would change."""
    planning = _Planning(record, data)
    for client in clients:
        planning.attempt(planning.take, client)
    return planning.planned()


def apply(plan: Plan, *, data: Path) -> None:
    """Do what was planned. Raises InvalidInput when a file has changed since, before anything is written."""
    for change in plan.changes:
        if _read(change.path) != change.before:
            raise InvalidInput(f"{change.path} has changed since it was shown; nothing is written, start again")
    record = plan.record
    for change in plan.changes:
        if change.before is not None and not change.is_ours:
            _write(data / BACKUPS / backup_name(change.path, change.before), change.before, record=None)
    _missing_folders(plan.changes, record)
    _write(data / RECORD, msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=2), record=None)
    for change in plan.changes:
        if change.after is None:
            change.path.unlink(missing_ok=True)
        else:
            _write(change.path, change.after, record=record)
    if not any(given.files or given.entries for given in record.clients.values()):
        (data / RECORD).unlink(missing_ok=True)
    for folder in sorted(record.folders, key=len, reverse=True):
        with suppress(OSError):  # not empty, or gone
            Path(folder).rmdir()


def backup_name(path: Path, content: bytes) -> str:
    return f"{path.name}.{_digest(content)[:16]}"


class _Planning:
    """A plan, as it grows client by client."""

    def __init__(self, record: Record, data: Path) -> None:
        self._record = _copied(record)
        self._data = data
        self._before: dict[Path, bytes | None] = {}
        self._after: dict[Path, bytes | None] = {}
        self._edited: set[Path] = set()  # files of the user
        self._kept: list[str] = []
        self._problems: dict[str, str] = {}

    def attempt(self, step: Callable[[Client], None], client: Client) -> None:
        """Plan all of a client, or nothing and the reason."""
        after, record, kept = dict(self._after), _copied(self._record), list(self._kept)
        try:
            step(client)
        except InvalidInput as error:
            self._after, self._record, self._kept = after, record, kept
            self._problems[client.name] = str(error)

    def put(self, client: Client) -> None:
        was, given = self._record.clients.get(client.name, Given()), Given()
        for file in client.files:
            self._put_file(file, given, was)
        self._record.clients[client.name] = given
        for path, digest in was.files.items():
            if not self._is_needed(path):  # an older mica wrote it
                self._take_file(Path(path), digest)
        for entry in client.entries:
            self._put_entry(entry, given, was)

    def take(self, client: Client) -> None:
        was = self._record.clients.pop(client.name, Given())
        for path, digest in was.files.items():
            if not self._is_needed(path):
                self._take_file(Path(path), digest)
        for changed in dict.fromkeys(put.entry.path for put in was.entries):
            self._take_entries(changed, [put for put in was.entries if put.entry.path == changed])
        for entry in client.leftovers if was.entries else ():
            text = self._text(entry.path)
            if text is not None and _value(text, entry) is not jsonc.MISSING:
                self._after[entry.path] = _without(text, entry, known=len(entry.keys)).encode()

    def planned(self) -> Plan:
        changes = tuple(
            Change(path=path, before=self._before[path], after=after, is_ours=path not in self._edited)
            for path, after in self._after.items()
            if after != self._before[path]
        )
        for change in changes:
            if not change.is_ours:
                self._remember(change)
        return Plan(record=self._record, changes=changes, kept=tuple(self._kept), problems=self._problems)

    def _remember(self, change: Change) -> None:
        """Keep how a user's file was before, for as long as nobody else changes it."""
        path, originals = str(change.path), self._record.originals
        entries = (put.entry for given in self._record.clients.values() for put in given.entries)
        before = originals.pop(path, None)
        if not any(str(entry.path) == path for entry in entries):
            return
        left = _digest(change.after or b"")
        if before is None:
            name = None if change.before is None else backup_name(change.path, change.before)
            originals[path] = Original(backup=name and str(self._data / BACKUPS / name), left=left)
        else:
            is_as_left = change.before is not None and before.left == _digest(change.before)
            originals[path] = Original(backup=before.backup, left=left if is_as_left else "")

    def _is_needed(self, path: str) -> bool:
        return any(path in given.files for given in self._record.clients.values())

    # -- Files of ours -----------------------------------------------------------------------------------------

    def _put_file(self, file: File, given: Given, was: Given) -> None:
        content = file.content.encode()
        found = self._seen(file.path)
        known = {other.files.get(str(file.path)) for other in self._record.clients.values()}
        if found is not None and found != content and _digest(found) not in known:
            self._kept.append(f"{file.path} is not as mica wrote it; it stays as it is")
            given.files |= {path: digest for path, digest in was.files.items() if path == str(file.path)}
            return
        given.files[str(file.path)] = _digest(content)
        self._after[file.path] = content

    def _take_file(self, path: Path, digest: str) -> None:
        found = self._seen(path)
        if found is None:
            return
        if _digest(found) != digest:
            self._kept.append(f"{path} is not as mica wrote it; it stays as it is")
            return
        self._after[path] = None

    # -- Entries in files of the user ---------------------------------------------------------------------------

    def _put_entry(self, entry: Entry, given: Given, was: Given) -> None:
        text = self._text(entry.path) or ""
        mine = [put for put in was.entries if _is_same_place(put.entry, entry)]
        found = _value(text, entry) if text.strip() else jsonc.MISSING
        if found is not jsonc.MISSING and found == entry.value:
            given.entries += mine  # what the user wrote before us is not ours
            return
        if found is not jsonc.MISSING:
            if not any(found == put.entry.value for put in mine):
                self._kept.append(f"{entry.name} in {entry.path} was written by somebody else; it stays as it is")
                given.entries += mine  # to be named again when the others go
                return
            if entry.format == "toml":
                text = _without(text, entry, known=0)
        elif entry.is_item:
            for put in mine:  # an older one of ours stands in the list
                if text.strip() and _value(text, put.entry) is not jsonc.MISSING:
                    text = _without(text, put.entry, known=put.known)
        known = mine[0].known if mine else _depth(text, entry)
        try:
            text = _with(text, entry)
        except InvalidInput as error:
            raise InvalidInput(f"{entry.path}: {entry.name}: {error}; it stays as it is") from error
        self._after[entry.path] = text.encode()
        given.entries.append(Put(entry=entry, known=known))

    def _take_entries(self, path: Path, puts: Sequence[Put]) -> None:
        self._edited.add(path)
        found = self._seen(path)
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
                continue  # what others wrote needs it
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

    # -- What is there, and what will be ------------------------------------------------------------------------

    def _seen(self, path: Path) -> bytes | None:
        if path not in self._before:
            self._before[path] = _read(path)
        return self._after.get(path, self._before[path])

    def _text(self, path: Path) -> str | None:
        """A user's file. Raises InvalidInput when it is none of texts in the form that its name promises."""
        self._edited.add(path)
        found = self._seen(path)
        if found is None:
            return None
        try:
            text = found.decode()
            if text.strip():
                tables.table_at(text, ()) if path.suffix == ".toml" else jsonc.parsed(text)
        except (UnicodeDecodeError, InvalidInput) as error:
            raise InvalidInput(
                f"{path} cannot be read ({error}); it stays as it is, mend it and start again"
            ) from error
        return text


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").splitlines(keepends=True)


def _is_same_place(one: Entry, other: Entry) -> bool:
    return (one.path, one.keys, one.is_item) == (other.path, other.keys, other.is_item)


def _value(text: str | None, entry: Entry) -> object:
    """What stands in the place of an entry: for an item, the item when it is there."""
    if not text or not text.strip():
        return jsonc.MISSING
    if entry.format == "toml":
        return tables.table_at(text, entry.keys)
    found = jsonc.value_at(text, entry.keys)
    if not entry.is_item or found is jsonc.MISSING:
        return found
    return entry.value if isinstance(found, list) and entry.value in found else jsonc.MISSING


def _with(text: str, entry: Entry) -> str:
    if entry.format == "toml":
        return tables.with_table(text, entry.keys, msgspec.convert(entry.value, dict[str, str | bool]))
    put = jsonc.with_item if entry.is_item else jsonc.with_value
    return put(text, entry.keys, entry.value)


def _without(text: str, entry: Entry, *, known: int) -> str:
    if entry.format == "toml":
        return tables.without_table(text, entry.keys)
    if entry.is_item:
        return jsonc.without_item(text, entry.keys, entry.value, known=known)
    return jsonc.without_value(text, entry.keys, known=min(known, len(entry.keys) - 1))


def _is_alone(text: str, entry: Entry) -> bool:
    said = jsonc.value_at(text, ()) if text.strip() else {}
    return isinstance(said, dict) and set(said) <= set(entry.keys[:1])


def _depth(text: str, entry: Entry) -> int:
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


def _missing_folders(changes: Iterable[Change], record: Record) -> None:
    """Note the folders that are about to be made."""
    known = set(record.folders)
    for change in changes:
        if change.after is not None:
            for folder in change.path.parents:
                if folder.exists():
                    break
                known.add(str(folder))
    record.folders = sorted(known)


def _write(path: Path, content: bytes, *, record: Record | None) -> None:
    """All or nothing, with the rights it had; a link is followed."""
    try:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600 if record is None else 0o644
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


def _copied(record: Record) -> Record:
    return msgspec.json.decode(msgspec.json.encode(record, enc_hook=str), type=Record, dec_hook=_as_path)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _as_path(kind: type, value: object) -> object:
    return value if kind is object else Path(str(value))
