"""The files and lines that tool calls of Cursor touch."""

from __future__ import annotations

from tests.clients.hook_payloads import (
    ROOT,
    Json,
    navigation,
)

from mica.clients.cursor import tools as cursor_tools
from mica.clients.records import ImportTally
from mica.clients.tool_effects import ClientCall, FileNames


def test_reads_and_commands_work_as_documented() -> None:
    """Not verified: no recording of Cursor exists."""
    files, tally = FileNames(ROOT), ImportTally()

    def found(tool: str, given: Json, output: object, *, failed: bool = False) -> list[tuple[object, ...]]:
        call = ClientCall(id="c", tool=tool, arguments=given, result=output, cwd=ROOT, failed=failed)
        return navigation(cursor_tools.drafts(call, files, tally))

    shell = '{"output":"# db line 1\\n# db line 2\\n","exitCode":0}'
    assert found("Shell", {"command": "sed -n '1,5p' src/db.py", "cwd": ROOT}, shell) == [
        ("read", "src/db.py", 1, 2, None)
    ]
    assert found("Read", {"file_path": f"{ROOT}/a.py"}, '{"content":"a\\nb\\n"}') == [("read", "a.py", 1, 2, 2)]
    assert found("Write", {"file_path": f"{ROOT}/a.py"}, "") == [("edit", "a.py", None, None, None)]
    assert found("Write", {"file_path": f"{ROOT}/a.py"}, "", failed=True) == []
