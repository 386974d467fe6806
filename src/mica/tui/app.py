"""The dashboard in a terminal: the hierarchy of crystals, the recent crystals, and the sources of each statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import ClassVar, cast

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static, Tree
from textual.widgets.option_list import Option
from textual.widgets.tree import TreeNode

from mica.errors import MicaError, StoreError
from mica.format.lines import format_time, one_line, plural
from mica.format.tree import Branch, forest
from mica.memory import Memory
from mica.model.crystal import Crystal, Level
from mica.model.event import CRYSTAL, MARK, RETRACTED, EventId, EventQuery, utc_now
from mica.model.hit import Hit
from mica.model.mark import Mark
from mica.tui import contents
from mica.tui.contents import DashboardContents

Source = Crystal | Mark

PAUSE_S = 0.3  # between two refreshes: a person notices no delay, and a busy agent costs a few per cent of a core
REFRESH_S = 10.0  # without a new event, so that an idle session disappears
HITS_MAX = 50
RECENT_MAX = 100
RESOLVED_MAX = 100  # events that are looked up to show one crystal


class Confirm(ModalScreen[bool]):
    """A dialog that shows the crystals that would be made, and asks for confirmation."""

    CSS = """
    Confirm { align: center middle; }
    Confirm > Static { width: 80%; max-height: 80%; padding: 1 2; border: round $accent; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,Y,enter", "answer(True)", "make"),
        Binding("n,N,escape", "answer(False)", "cancel"),
    ]

    def __init__(self, crystals: list[Crystal]) -> None:
        super().__init__()
        self._crystals = crystals

    def compose(self) -> ComposeResult:
        yield Static(contents.preview(self._crystals), id="preview")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - as bindings call it
        _ = self.dismiss(answer)  # a screen cannot await its own dismissal


class Dashboard(App[None]):
    """The dashboard of one space, updated live. It writes nothing except crystals that the user confirmed."""

    TITLE = "mica"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; background: $primary; color: $text; padding: 0 1; }
    #hierarchy { width: 1fr; border: round $primary; overflow-x: hidden; }
    #right { width: 1fr; }
    #recent { height: 1fr; border: round $primary; text-wrap: nowrap; text-overflow: ellipsis; }
    #pane { height: 1fr; border: round $primary; }
    #query { display: none; }
    #query.visible { display: block; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    #status.unavailable { background: $error; color: $text; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,C", "crystallize", "Crystallize", key_display="C"),
        Binding("t,T", "tree", "Tree", key_display="T"),
        Binding("e,E", "expand", "Expand", key_display="E"),
        Binding("Q,slash", "query", "Query", key_display="Q"),
        Binding("j", "move(True)", "Down", show=False),
        Binding("k", "move(False)", "Up", show=False),
        Binding("0", "level('session')", "session", show=False),
        Binding("1", "level('day')", "day", show=False),
        Binding("2", "level('week')", "week", show=False),
        Binding("3", "level('epoch')", "epoch", show=False),
        Binding("a", "level('')", "Level, all", key_display="0-3,a"),
        Binding("r", "refresh", "Refresh", key_display="r"),
        Binding("escape", "leave", "Back", show=False),
        Binding("q", "quit", "Quit", key_display="q"),
    ]

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self._stale = asyncio.Event()  # set when the contents must be read again
        self._contents: DashboardContents | None = None
        self._level: Level | None = None
        self._hits: list[Source] | None = None  # the results of a search while they are shown
        self._words = ""  # of that search
        self._selected: Source | None = None
        self._read_at = utc_now()
        self._cursor_id: EventId | None = None  # the node to select again after the tree was redrawn

    def compose(self) -> ComposeResult:
        # Attributes, because a worker that ends after the screen is closed cannot query its widgets.
        self._hierarchy: Tree[Source] = Tree("", id="hierarchy")
        self._hierarchy.show_root = False
        self._hierarchy.border_title = "Hierarchy"
        self._recent = OptionList(id="recent", markup=False)
        self._detail = Static("", id="detail", markup=False)
        self._detail_pane = VerticalScroll(self._detail, id="pane")
        self._detail_pane.border_title = "Detail"
        self._query = Input(placeholder="words to search for, then Enter; Esc goes back", id="query")
        self._status = Static("", id="status", markup=False)
        yield Static(f"mica  {PurePath(self._memory.location).name}", id="title", markup=False)
        with Horizontal():
            yield self._hierarchy
            with Vertical(id="right"):
                yield self._recent
                yield self._detail_pane
        yield self._query
        yield self._status
        yield Footer()

    def on_mount(self) -> None:
        self._hierarchy.focus()
        self._stale.set()
        self._refresh_when_stale()
        self._follow()

    # -- Refreshing ---------------------------------------------------------------------------------------------

    @work(group="follow")
    async def _follow(self) -> None:
        """Request a refresh after every event that changes the dashboard. Events of other processes count, too."""
        names = (MARK, CRYSTAL, RETRACTED, "event.purged")
        async for _ in self._memory.events.follow(EventQuery(names=names)):
            self._stale.set()

    @work(group="refresh")
    async def _refresh_when_stale(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stale.wait(), REFRESH_S)
            self._stale.clear()
            await self._refresh()
            await asyncio.sleep(PAUSE_S)

    async def _refresh(self) -> None:
        try:
            current = await contents.read_contents(self._memory)
        except MicaError as error:
            self._show_error(error)
            self._stale.set()
            return
        self._read_at = utc_now()
        before, self._contents = self._contents, current
        if before is None or before.crystals != current.crystals:
            self._draw_hierarchy(is_first=before is None or not before.crystals)
            self._draw_recent()
        if not current.crystals and self._selected is None:
            self._show(contents.next_steps(current))
        self._draw_status()

    def _show_error(self, error: MicaError) -> None:
        if not isinstance(error, StoreError):
            self.notify(one_line(str(error), 400), severity="error", markup=False)
            return
        self._status.add_class("unavailable")
        self._status.update(
            one_line(f"the store is unavailable: {error}; this is the state of {format_time(self._read_at)}", 400)
        )

    def _draw_status(self) -> None:
        self._status.remove_class("unavailable")
        self._status.update(contents.status(self._contents or DashboardContents(), level=self._level))

    # -- Drawing ------------------------------------------------------------------------------------------------

    def _draw_hierarchy(self, *, is_first: bool) -> None:
        tree = self._hierarchy
        opened = {node.data.id for node in _nodes(tree.root) if node.data and node.is_expanded}
        cursor = tree.cursor_node
        self._cursor_id = cursor.data.id if cursor is not None and cursor.data is not None else None
        tree.clear()
        for branch in forest((self._contents or DashboardContents()).crystals):
            self._add(tree.root, branch, opened=None if is_first else opened)
        tree.root.expand()
        if self._cursor_id is None and tree.root.children:
            self._cursor_id = getattr(tree.root.children[0].data, "id", None)
        self._restore_cursor(tree.root)

    def _add(self, parent: TreeNode[Source], branch: Branch, *, opened: set[EventId] | None) -> None:
        """Draw a crystal and the crystals below it, as a child of the node `parent`.

        `opened` has the ids of the crystals that are expanded. If it is None, all crystals above sessions are expanded.
        """
        crystal = branch.crystal
        is_open = crystal.level != "session" if opened is None else crystal.id in opened
        node = parent.add(contents.node_label(crystal), data=crystal, expand=is_open and bool(branch.below))
        for below in branch.below:
            self._add(node, below, opened=opened)
        if is_open and not branch.below:
            node.expand()  # this loads its marks

    def _restore_cursor(self, below: TreeNode[Source]) -> None:
        for node in _nodes(below):
            if self._cursor_id is not None and node.data is not None and node.data.id == self._cursor_id:
                self._cursor_id = None
                self.call_after_refresh(self._hierarchy.move_cursor, node)

    def _draw_recent(self) -> None:
        chosen = self._highlighted
        if self._hits is not None:
            shown: Sequence[Source] = self._hits
            title = f"Query: {one_line(self._words, 60)} ({plural(len(shown), 'mark')})"
        else:
            crystals = (self._contents or DashboardContents()).crystals
            shown = [each for each in reversed(crystals) if self._level in (None, each.level)][:RECENT_MAX]
            title = f"Recent {self._level or ''} crystals".replace("  ", " ")
        self._recent.border_title = title
        self._recent.set_options(Option(contents.recent_label(each), id=each.id) for each in shown)
        ids = [each.id for each in shown]
        if chosen in ids:
            self._recent.highlighted = ids.index(EventId(chosen))

    def _show(self, detail: object) -> None:
        self._detail.update(detail)  # type: ignore[arg-type]  # a string or a rich text
        self._detail_pane.scroll_home(animate=False)

    # -- Selecting ----------------------------------------------------------------------------------------------

    def on_tree_node_highlighted(self, message: Tree.NodeHighlighted[Source]) -> None:
        if message.node.data is not None and self.focused is self._hierarchy:
            self._select(message.node.data)

    def on_option_list_option_highlighted(self, message: OptionList.OptionHighlighted) -> None:
        if (source := self._find_listed(message.option.id)) is not None and self.focused is self._recent:
            self._select(source)

    def on_descendant_focus(self) -> None:
        """Show the highlighted line of a list in the detail view when the list gets the focus."""
        node = self._hierarchy.cursor_node
        if self.focused is self._hierarchy and node is not None and node.data is not None:
            self._select(node.data)
        elif self.focused is self._recent and (source := self._find_listed(self._highlighted)) is not None:
            self._select(source)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.action_expand()

    def on_tree_node_expanded(self, message: Tree.NodeExpanded[Source]) -> None:
        if isinstance(message.node.data, Crystal) and not message.node.children:
            self._load_sources(message.node, message.node.data)

    @work(group="load")
    async def _load_sources(self, node: TreeNode[Source], crystal: Crystal) -> None:
        try:
            sources = await self._memory.crystals.expand(crystal.id)
        except MicaError as error:
            self._show_error(error)
            return
        if not node.children:
            for source in sources:
                label = contents.node_label(source)
                node.add(label, data=source) if isinstance(source, Crystal) else node.add_leaf(label, data=source)
            self._restore_cursor(node)

    @property
    def _highlighted(self) -> str | None:
        option = self._recent.highlighted_option
        return None if option is None else option.id

    def _find_listed(self, identifier: str | None) -> Source | None:
        known: list[Source] = [*(self._hits or ()), *(self._contents or DashboardContents()).crystals]
        return next((source for source in known if source.id == identifier), None)

    def _select(self, source: Source) -> None:
        self._selected = source
        self._show_source(source)

    @work(group="detail", exclusive=True)
    async def _show_source(self, source: Source) -> None:
        if isinstance(source, Mark):
            self._show(contents.mark_detail(source))
            return
        cited = [mark for statement in source.statements for mark in statement.sources]
        ids = list(dict.fromkeys([*cited, *source.open]))[:RESOLVED_MAX]
        try:
            resolved = await self._memory.events.resolve(ids)
        except MicaError as error:
            self._show_error(error)
            return
        self._show(contents.crystal_detail(source, {event.id: event.number for event in resolved.events}))

    # -- Keys ---------------------------------------------------------------------------------------------------

    def action_move(self, is_down: bool) -> None:  # noqa: FBT001 - as bindings call it
        focused = self.focused
        if isinstance(focused, Tree | OptionList):
            (focused.action_cursor_down if is_down else focused.action_cursor_up)()
        elif focused is not None:
            (focused.scroll_down if is_down else focused.scroll_up)()

    def action_level(self, level: str) -> None:
        self._level = cast(Level, level) if level else None
        self._hits = None
        self._draw_recent()
        self._draw_status()

    def action_refresh(self) -> None:
        self._stale.set()

    def action_expand(self) -> None:
        if not isinstance(self._selected, Crystal):
            self.notify("select a crystal; a mark has no sources")
            return
        node = self._hierarchy.cursor_node
        if node is not None and node.data is self._selected:
            node.expand()
        self._show_sources(self._selected)

    @work(group="detail", exclusive=True)
    async def _show_sources(self, crystal: Crystal) -> None:
        try:
            self._show(contents.expanded_detail(crystal, await self._memory.crystals.expand(crystal.id)))
        except MicaError as error:
            self._show_error(error)

    def action_tree(self) -> None:
        if not isinstance(self._selected, Mark):
            self.notify("select a mark; Enter on a session shows its marks")
            return
        self._show_tree(self._selected)

    @work(group="detail", exclusive=True)
    async def _show_tree(self, mark: Mark) -> None:
        try:
            event = await self._memory.events.get(mark.id)
            ancestors, below = await self._memory.events.ancestors(event), await self._memory.events.descendants(event)
        except MicaError as error:
            self._show_error(error)
            return
        self._show(contents.tree_detail(event, ancestors, below))

    def action_query(self) -> None:
        self._query.add_class("visible")
        self._query.focus()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        if message.value.strip():
            self._search(message.value.strip())

    @work(group="search", exclusive=True)
    async def _search(self, words: str) -> None:
        try:
            hits = await self._memory.search(words, limit=HITS_MAX)
        except MicaError as error:
            self._show_error(error)
            return
        self._words, self._hits = words, [hit.mark if isinstance(hit, Hit) else hit.crystal for hit in hits]
        self._query.remove_class("visible")
        self._draw_recent()
        self._recent.focus()
        if not hits:
            self._show("Nothing matches. Try other words; Esc goes back to the crystals.")
        else:
            self._recent.highlighted = 0

    def action_leave(self) -> None:
        self._query.remove_class("visible")
        self._hits = None
        self._draw_recent()
        self._hierarchy.focus()

    def action_crystallize(self) -> None:
        self._crystallize()

    @work(group="crystallize", exclusive=True)
    async def _crystallize(self) -> None:
        try:
            offered = await self._memory.crystals.make(dry_run=True)
            if not offered:
                self.notify("nothing to crystallize: no marks are waiting, or too few to summarize")
                return
            if await self.push_screen_wait(Confirm(offered)):
                made = await self._memory.crystals.make()
                self.notify(f"{plural(len(made), 'crystal')} made")
                self._stale.set()
        except MicaError as error:
            self._show_error(error)


def _nodes(below: TreeNode[Source]) -> list[TreeNode[Source]]:
    nodes: list[TreeNode[Source]] = []
    waiting = list(below.children)
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += node.children
    return nodes
