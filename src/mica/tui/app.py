"""The dashboard: the hierarchy of crystals, what is new, and where each statement comes from."""

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
from mica.format.lines import counted, local, one_line
from mica.format.tree import Branch, forest
from mica.memory import Memory
from mica.model.crystal import Crystal, Level
from mica.model.event import CRYSTAL, MARK, RETRACTED, EventId, EventQuery, Mark, utc_now
from mica.search.ranker import Hit
from mica.tui import contents as shelves
from mica.tui.contents import Shelf

Source = Crystal | Mark

REST_S = 0.3  # between two looks: a person sees no delay, and a busy agent costs a few per cent of a core
LOOK_S = 10.0  # a look without a reason, so that a session that went idle is seen to
HITS_MAX = 50
RECENT_MAX = 100
RESOLVED_MAX = 100  # handles that are looked up for one detail


class Confirm(ModalScreen[bool]):
    """Shows what would be made, and asks."""

    CSS = """
    Confirm { align: center middle; }
    Confirm > Static { width: 80%; max-height: 80%; padding: 1 2; border: round $accent; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,Y,enter", "answer(True)", "make"),
        Binding("n,N,escape", "answer(False)", "not"),
    ]

    def __init__(self, crystals: list[Crystal]) -> None:
        super().__init__()
        self._crystals = crystals

    def compose(self) -> ComposeResult:
        yield Static(shelves.preview(self._crystals), id="preview")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - as bindings call it
        _ = self.dismiss(answer)  # a screen cannot wait for its own end


class Dashboard(App[None]):
    """One space on one screen. It reads as things happen; it writes only crystals that were confirmed."""

    TITLE = "mica"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; background: $primary; color: $text; padding: 0 1; }
    #hierarchy { width: 1fr; border: round $primary; overflow-x: hidden; }
    #right { width: 1fr; }
    #recent { height: 1fr; border: round $primary; text-wrap: nowrap; text-overflow: ellipsis; }
    #around { height: 1fr; border: round $primary; }
    #query { display: none; }
    #query.asked { display: block; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    #status.away { background: $error; color: $text; }
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
        self._wanted = asyncio.Event()  # somebody should look again
        self._shelf: Shelf | None = None
        self._level: Level | None = None
        self._hits: list[Source] | None = None  # while a query is shown
        self._asked = ""
        self._selected: Source | None = None
        self._seen_at = utc_now()
        self._awaited: EventId | None = None  # where the cursor was before the tree was drawn anew

    def compose(self) -> ComposeResult:
        # Kept, because work that ends after the screen was taken down would find none of them.
        self._hierarchy: Tree[Source] = Tree("", id="hierarchy")
        self._hierarchy.show_root = False
        self._hierarchy.border_title = "Hierarchy"
        self._recent = OptionList(id="recent", markup=False)
        self._detailed = Static("", id="detail", markup=False)
        self._around = VerticalScroll(self._detailed, id="around")
        self._around.border_title = "Detail"
        self._query = Input(placeholder="words to look for, Enter; Esc goes back", id="query")
        self._line = Static("", id="status", markup=False)
        yield Static(f"mica  {PurePath(self._memory.location).name}", id="title", markup=False)
        with Horizontal():
            yield self._hierarchy
            with Vertical(id="right"):
                yield self._recent
                yield self._around
        yield self._query
        yield self._line
        yield Footer()

    def on_mount(self) -> None:
        self._hierarchy.focus()
        self._wanted.set()
        self._keep_looking()
        self._follow()

    # -- Looking ------------------------------------------------------------------------------------------------

    @work(group="follow")
    async def _follow(self) -> None:
        """Look again whenever something is stored, by whichever process."""
        names = (MARK, CRYSTAL, RETRACTED, "event.purged")
        async for _ in self._memory.follow(EventQuery(names=names)):
            self._wanted.set()

    @work(group="look")
    async def _keep_looking(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), LOOK_S)
            self._wanted.clear()
            await self._look()
            await asyncio.sleep(REST_S)

    async def _look(self) -> None:
        try:
            found = await shelves.look(self._memory)
        except MicaError as error:
            self._tell(error)
            self._wanted.set()
            return
        self._seen_at = utc_now()
        before, self._shelf = self._shelf, found
        if before is None or before.crystals != found.crystals:
            self._draw_hierarchy(is_first=before is None or not before.crystals)
            self._draw_recent()
        if not found.crystals and self._selected is None:
            self._show(shelves.nothing(found))
        self._draw_status()

    def _tell(self, error: MicaError) -> None:
        """A store that is away is a state, shown until it is back; anything else is said once."""
        if not isinstance(error, StoreError):
            self.notify(one_line(str(error), 400), severity="error", markup=False)
            return
        self._line.add_class("away")
        self._line.update(
            one_line(f"the store is away: {error}; shown is what was there at {local(self._seen_at)}", 400)
        )

    def _draw_status(self) -> None:
        self._line.remove_class("away")
        self._line.update(shelves.status(self._shelf or Shelf(), level=self._level))

    # -- Drawing ------------------------------------------------------------------------------------------------

    def _draw_hierarchy(self, *, is_first: bool) -> None:
        tree = self._hierarchy
        opened = {node.data.id for node in _nodes(tree.root) if node.data and node.is_expanded}
        cursor = tree.cursor_node
        self._awaited = cursor.data.id if cursor is not None and cursor.data is not None else None
        tree.clear()
        for branch in forest((self._shelf or Shelf()).crystals):
            self._add(tree.root, branch, opened=None if is_first else opened)
        tree.root.expand()
        if self._awaited is None and tree.root.children:
            self._awaited = getattr(tree.root.children[0].data, "id", None)
        self._restore_cursor(tree.root)

    def _add(self, parent: TreeNode[Source], branch: Branch, *, opened: set[EventId] | None) -> None:
        """Draw a crystal and what is below it; at first all that is above sessions is open."""
        crystal = branch.crystal
        is_open = crystal.level != "session" if opened is None else crystal.id in opened
        node = parent.add(shelves.node_label(crystal), data=crystal, expand=is_open and bool(branch.below))
        for below in branch.below:
            self._add(node, below, opened=opened)
        if is_open and not branch.below:
            node.expand()  # which loads its marks

    def _restore_cursor(self, below: TreeNode[Source]) -> None:
        for node in _nodes(below):
            if self._awaited is not None and node.data is not None and node.data.id == self._awaited:
                self._awaited = None
                self.call_after_refresh(self._hierarchy.move_cursor, node)

    def _draw_recent(self) -> None:
        chosen = self._highlighted
        if self._hits is not None:
            shown: Sequence[Source] = self._hits
            title = f"Query: {one_line(self._asked, 60)} ({counted(len(shown), 'mark')})"
        else:
            crystals = (self._shelf or Shelf()).crystals
            shown = [each for each in reversed(crystals) if self._level in (None, each.level)][:RECENT_MAX]
            title = f"Recent {self._level or ''} crystals".replace("  ", " ")
        self._recent.border_title = title
        self._recent.set_options(Option(shelves.recent_label(each), id=each.id) for each in shown)
        ids = [each.id for each in shown]
        if chosen in ids:
            self._recent.highlighted = ids.index(EventId(chosen))

    def _show(self, detail: object) -> None:
        self._detailed.update(detail)  # type: ignore[arg-type]  # a text of rich or of ours
        self._around.scroll_home(animate=False)

    # -- Choosing -----------------------------------------------------------------------------------------------

    def on_tree_node_highlighted(self, message: Tree.NodeHighlighted[Source]) -> None:
        if message.node.data is not None and self.focused is self._hierarchy:
            self._choose(message.node.data)

    def on_option_list_option_highlighted(self, message: OptionList.OptionHighlighted) -> None:
        if (source := self._listed(message.option.id)) is not None and self.focused is self._recent:
            self._choose(source)

    def on_descendant_focus(self) -> None:
        """What is chosen is what the focused list stands on."""
        node = self._hierarchy.cursor_node
        if self.focused is self._hierarchy and node is not None and node.data is not None:
            self._choose(node.data)
        elif self.focused is self._recent and (source := self._listed(self._highlighted)) is not None:
            self._choose(source)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        self.action_expand()

    def on_tree_node_expanded(self, message: Tree.NodeExpanded[Source]) -> None:
        if isinstance(message.node.data, Crystal) and not message.node.children:
            self._load(message.node, message.node.data)

    @work(group="load")
    async def _load(self, node: TreeNode[Source], crystal: Crystal) -> None:
        try:
            sources = await self._memory.expand(crystal.id)
        except MicaError as error:
            self._tell(error)
            return
        if not node.children:
            for source in sources:
                label = shelves.node_label(source)
                node.add(label, data=source) if isinstance(source, Crystal) else node.add_leaf(label, data=source)
            self._restore_cursor(node)

    @property
    def _highlighted(self) -> str | None:
        option = self._recent.highlighted_option
        return None if option is None else option.id

    def _listed(self, identifier: str | None) -> Source | None:
        known: list[Source] = [*(self._hits or ()), *(self._shelf or Shelf()).crystals]
        return next((source for source in known if source.id == identifier), None)

    def _choose(self, source: Source) -> None:
        self._selected = source
        self._detail(source)

    @work(group="detail", exclusive=True)
    async def _detail(self, source: Source) -> None:
        if isinstance(source, Mark):
            self._show(shelves.mark_detail(source))
            return
        cited = [mark for statement in source.statements for mark in statement.sources]
        wanted = list(dict.fromkeys([*cited, *source.open]))[:RESOLVED_MAX]
        try:
            found = await self._memory.resolve(wanted)
        except MicaError as error:
            self._tell(error)
            return
        self._show(shelves.crystal_detail(source, {event.id: event.number for event in found.found}))

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
        self._wanted.set()

    def action_expand(self) -> None:
        if not isinstance(self._selected, Crystal):
            self.notify("choose a crystal; a mark rests on nothing else")
            return
        node = self._hierarchy.cursor_node
        if node is not None and node.data is self._selected:
            node.expand()
        self._expanded(self._selected)

    @work(group="detail", exclusive=True)
    async def _expanded(self, crystal: Crystal) -> None:
        try:
            self._show(shelves.expanded_detail(crystal, await self._memory.expand(crystal.id)))
        except MicaError as error:
            self._tell(error)

    def action_tree(self) -> None:
        if not isinstance(self._selected, Mark):
            self.notify("choose a mark; Enter on a session shows its marks")
            return
        self._tree_of(self._selected)

    @work(group="detail", exclusive=True)
    async def _tree_of(self, mark: Mark) -> None:
        try:
            event = await self._memory.event(mark.id)
            ancestors, below = await self._memory.ancestors(event), await self._memory.descendants(event)
        except MicaError as error:
            self._tell(error)
            return
        self._show(shelves.tree_detail(event, ancestors, below))

    def action_query(self) -> None:
        self._query.add_class("asked")
        self._query.focus()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        if message.value.strip():
            self._search(message.value.strip())

    @work(group="search", exclusive=True)
    async def _search(self, words: str) -> None:
        try:
            hits = await self._memory.search(words, limit=HITS_MAX)
        except MicaError as error:
            self._tell(error)
            return
        self._asked, self._hits = words, [hit.mark if isinstance(hit, Hit) else hit.crystal for hit in hits]
        self._query.remove_class("asked")
        self._draw_recent()
        self._recent.focus()
        if not hits:
            self._show("Nothing found. Other words may help; Esc goes back to the crystals.")
        else:
            self._recent.highlighted = 0

    def action_leave(self) -> None:
        self._query.remove_class("asked")
        self._hits = None
        self._draw_recent()
        self._hierarchy.focus()

    def action_crystallize(self) -> None:
        self._crystallize()

    @work(group="crystallize", exclusive=True)
    async def _crystallize(self) -> None:
        try:
            offered = await self._memory.crystallize(dry_run=True)
            if not offered:
                self.notify("nothing to crystallize: no marks wait, or they are too few to say it in fewer words")
                return
            if await self.push_screen_wait(Confirm(offered)):
                made = await self._memory.crystallize()
                self.notify(f"{counted(len(made), 'crystal')} made")
                self._wanted.set()
        except MicaError as error:
            self._tell(error)


def _nodes(below: TreeNode[Source]) -> list[TreeNode[Source]]:
    """Every node under this one."""
    found: list[TreeNode[Source]] = []
    waiting = list(below.children)
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += node.children
    return found
