"""Finds the summary that an agent wrote when it compacted its window, without the words of the client around it.

A model wrote such a summary of a whole session, so it is worth keeping; it is the agent's statement, never the user's.
"""

from __future__ import annotations

from mica.clients.prompts import element, remove_element

_PREAMBLES = (  # each ends at a line end or an empty line
    ("This session is being continued from a previous conversation", "\n\n"),  # Claude Code
    ("Another language model started to solve this problem", "\n"),  # Codex
)
_POSTSCRIPTS = (  # of Claude Code, each at the beginning of a line
    "\nIf you need specific details from before compaction",
    "\nPlease continue the conversation from where",
    "\nContinue the conversation from where",
    "\nRecent messages are preserved verbatim",
)
_TAGS = ("system-reminder", "analysis")


def summary_in(text: str) -> str:
    """Return the summary in the text of a compaction; empty if there is none."""
    text = text.strip()
    for beginning, end in _PREAMBLES:
        if text.startswith(beginning):
            text = text.partition(end)[2]
    for tag in _TAGS:
        text = remove_element(text, tag)
    for tag in ("summary", "state_snapshot"):
        text = element(text, tag) or text
    text = text.strip()
    if text.startswith("Analysis:") and "\nSummary:" in text:
        text = text.partition("\nSummary:")[2]
    text = text.removeprefix("Summary:")
    for postscript in _POSTSCRIPTS:
        text = text.partition(postscript)[0]
    return text.strip()
