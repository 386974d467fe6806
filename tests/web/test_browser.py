"""The dashboard in a real Chromium: navigation, live updates, keyboard, dark mode, phone and accessibility."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright
from tests.sample_work import work

import mica
from mica.settings import Settings
from mica.web.access import Access
from mica.web.app import application
from mica.web.memory_pool import MemoryPool
from mica.web.pages.templates import PAGES
from mica.web.tokens import SCOPES, TokenFile

AXE = Path(__file__).parents[1] / "fixtures" / "axe" / "axe-4.14.0.min.js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 780}
SCRIPT = "<script>alert('x')</script><img src=x onerror=alert(1)>"
REPEATED = ("tbody > tr:nth-child(n+6)", ".forest > li:nth-child(n+4)", ".rows > li:nth-child(n+4)", ".brief-text")
SETTLED = "() => [...document.querySelectorAll('.waiting')].every((each) => !each.checkVisibility())"


class Site(msgspec.Struct, frozen=True):
    """A running server and the file of its space."""

    address: str
    file: Path
    settings: Settings
    access: Access

    def link(self) -> str:
        return f"{self.address}/enter?key={self.access.new_key(SCOPES)}"

    def do(self, work: Callable[[mica.Memory], Coroutine[object, object, object]]) -> None:
        """Change the space from another connection, as another process would."""

        async def open_and_work() -> None:
            async with mica.open(self.file, settings=self.settings) as memory:
                await work(memory)

        with ThreadPoolExecutor(1) as pool:  # the browser uses the event loop of this thread
            pool.submit(lambda: asyncio.run(open_and_work())).result()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    settings = mica.load_settings({"HOME": str(folder / "home"), "MICA_SEMANTIC": "off"})
    file = folder / "shop.db"
    access = Access(TokenFile(settings.home), port=0)

    async def fill(memory: mica.Memory) -> None:
        await work(memory, now=datetime.now(UTC))
        memory.mark(f"A visitor wrote {SCRIPT} into a form", tags="finding")

    Site("", file, settings, access).do(fill)
    server = uvicorn.Server(
        uvicorn.Config(
            application(MemoryPool(file, settings=settings), access=access),
            port=0,
            log_config=None,
            ws="websockets-sansio",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server did not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Site(f"http://127.0.0.1:{port}", file, settings, access)
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, "the browser tests need Chromium; `make test` finds or installs one"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def entered(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    """A browser that is logged in by a link of `mica up`."""
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]  # a size
    context.set_default_timeout(30_000)  # for a busy machine
    expect.set_options(timeout=30_000)
    page = context.new_page()
    page.goto(site.link())
    page.close()
    yield context
    context.close()


@pytest.fixture
def wrong() -> list[str]:
    """Errors in a tab. A test that provokes one removes it."""
    return []


@pytest.fixture
def page(entered: BrowserContext, site: Site, wrong: list[str]) -> Iterator[Page]:
    """A tab; console errors, dialogs and foreign requests fail the test."""
    opened = entered.new_page()
    opened.set_viewport_size(WIDE)  # type: ignore[arg-type]  # a size
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda shown: wrong.append(f"a script ran: {shown.message}"))
    opened.on(
        "request",
        lambda request: None if request.url.startswith((site.address, "data:")) else wrong.append(request.url),
    )
    yield opened
    opened.close()
    assert wrong == []


def go(page: Page, site: Site, path: str) -> None:
    page.goto(site.address + path)
    page.wait_for_function(SETTLED)


def heading(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def test_every_page_can_be_clicked_through(page: Page, site: Site) -> None:
    """keeps: A-21, B-32"""
    go(page, site, "/")
    for address, name, *_ in PAGES:
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        page.wait_for_function(SETTLED)
        assert page.url.removeprefix(site.address) == address
        expect(page.locator("[aria-current=page]")).to_contain_text(name)
        assert page.locator("[role=alert]").count() == 0

    go(page, site, "/admin/patterns")
    expect(page.locator("#map svg.chart")).to_be_visible()
    expect(page.get_by_role("img", name="Trails known, named, renewed and used by week")).to_be_visible()
    page.get_by_role("link", name="nav:").first.click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    go(page, site, "/briefs")
    page.locator("a.line").first.click()
    expect(page.get_by_role("heading", name="Each line, and where it comes from")).to_be_visible()
    page.locator("a.handle[data-item]").first.click()
    expect(page.get_by_role("heading", name="Its chain")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(page: Page, site: Site, scheme: str) -> None:
    """Checked by axe. Long lists are checked at their first lines, and dark mode only for contrast."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    source = AXE.read_text(encoding="utf-8")
    only = ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] if scheme == "light" else ["color-contrast"]
    where = {"include": [["body"]], "exclude": [[each] for each in REPEATED]}
    violations: dict[str, list[str]] = {}
    go(page, site, "/crystals?level=session")
    inner = ["/events/1", str(page.locator("a.handle").first.get_attribute("href"))]

    for address in [*(address for address, *_ in PAGES), *inner]:
        go(page, site, address)
        page.evaluate(source)
        report = page.evaluate("([where, only]) => axe.run(where, {runOnly: only})", [where, only])
        if report["violations"]:
            violations[address] = [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in report["violations"]]

    assert violations == {}


def test_a_click_while_a_part_is_replaced_takes_effect(page: Page, site: Site) -> None:
    """A click right before or after a part is replaced has the usual effect."""
    go(page, site, "/crystals")
    page.evaluate(
        """() => document.addEventListener("htmx:afterSwap", () => {
            document.querySelector(".forest details[open] .node.day > details:not([open]) > summary")?.click();
        })"""
    )
    page.locator(".forest > .node.week summary").first.click()
    expect(page.locator(".forest details[open] .node.session").first).to_be_visible()

    page.evaluate(
        """() => {
            const open = () => document.querySelector(".forest details[open] .node.session summary").click();
            document.addEventListener("htmx:beforeSwap", open, {capture: true, once: true});
            mica.notify("crystal");
        }"""
    )
    expect(page.locator(".forest details[open] .node.mark").first).to_be_visible()


def test_a_week_opens_down_to_its_marks_by_keyboard_alone(page: Page, site: Site) -> None:
    """keeps: B-32. Expand with E, the causal tree with T, crystallize with C, query with Q."""
    go(page, site, "/")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(heading(page)).to_have_text("Crystals")
    page.wait_for_function(SETTLED)
    for level in ("day", "session", "mark"):
        page.keyboard.press("j")
        page.keyboard.press("e")
        expect(page.locator(f".forest details[open] .node.{level}").first).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator(".leaf a:focus")).to_be_visible()
    page.keyboard.press("c")
    expect(page.locator("#act").get_by_role("heading", name="Crystallize now")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#act")).to_be_hidden()
    page.keyboard.press("q")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator(".leaf a").first.focus()
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Its chain")).to_be_visible()


def test_search_results_appear_while_typing(page: Page, site: Site) -> None:
    go(page, site, "/crystals")

    page.locator("#q").fill("cookie proxy")
    expect(page.get_by_role("status").filter(has_text="results for")).to_be_visible()
    page.locator("#q").fill("zebra")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.locator("#q").fill("")

    expect(page.locator(".node.week").first).to_be_visible()


def test_events_of_other_processes_appear_without_reloading(page: Page, site: Site) -> None:
    """keeps: B-31, B-32. Over the stream of events, without reloading."""
    go(page, site, "/events")
    expect(page.locator("[data-live]")).to_have_text("Live")

    async def observe(memory: mica.Memory) -> None:
        with memory.context(session="elsewhere", agent="codex"):
            for number in range(6):
                memory.mark(f"The warehouse counts {number} boxes of tea twice when a lorry comes at night")

    site.do(observe)
    expect(page.get_by_text("The warehouse counts 5 boxes")).to_be_visible()
    expect(page.get_by_text("The warehouse counts 5 boxes")).to_have_count(1)
    rows = page.locator("#rows tr")
    shown = rows.count()
    page.get_by_role("button", name="Older").click()
    expect(rows.nth(shown + 20)).to_be_visible()
    go(page, site, "/crystals")
    expect(page.locator("[data-live]")).to_have_text("Live")
    page.locator(".node.week summary").first.click()
    days = page.locator(".node.week").first.locator(".node.day")
    expect(days.first).to_be_visible()

    async def crystallize(memory: mica.Memory) -> None:
        await memory.crystals.make(session="elsewhere")

    site.do(crystallize)
    expect(page.locator(".node.session").filter(has_text="warehouse").first).to_be_visible()
    expect(days.first).to_be_visible()  # open nodes stay open
    expect(page.locator(".node.week summary").first).to_be_focused()


def test_a_purge_asks_for_confirmation_first(page: Page, site: Site, wrong: list[str]) -> None:
    """keeps: U-08"""

    async def observe(memory: mica.Memory) -> None:
        memory.mark("The customer is called Rosalind Quickfinger", tags="finding")

    site.do(observe)
    go(page, site, "/crystals?q=Quickfinger")
    page.locator(".leaf").filter(has_text="Quickfinger").locator("a.handle").click()
    page.wait_for_url("**/events/*")
    page.wait_for_function(SETTLED)
    page.get_by_role("button", name="Purge…").click()
    dialog = page.locator("#act")
    expect(dialog.get_by_text("cannot be undone")).to_be_visible()
    number = heading(page).locator("xpath=..").locator(".handle").inner_text().lstrip("#")
    dialog.get_by_label("to confirm").fill("1")

    with page.expect_response(lambda answer: "/purge/" in answer.url and answer.request.method == "POST") as refused:
        dialog.get_by_role("button", name="Purge for good").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nothing was removed")
    dialog.get_by_label("to confirm").fill(number)
    dialog.get_by_role("button", name="Purge for good").click()

    assert refused.value.status == 422
    assert [each for each in wrong if "422" in each] == wrong
    wrong.clear()
    expect(page.get_by_text("1 event purged")).to_be_visible()
    expect(dialog).to_be_hidden()
    go(page, site, "/crystals?q=Quickfinger")
    expect(page.locator("main").get_by_text("Rosalind")).to_have_count(0)


def test_one_click_names_a_trail(page: Page, site: Site) -> None:
    go(page, site, "/admin/patterns")
    row = page.locator("table.hot tr").filter(has=page.get_by_role("button", name="Crystallize")).first
    name = row.get_by_role("link").inner_text()

    row.get_by_role("button", name="Crystallize").click()

    expect(page.get_by_text(f"{name} is a command now")).to_be_visible()
    named = page.locator("table.hot tr").filter(has=page.get_by_role("link", name=name, exact=True))
    expect(named.get_by_text("crystallized")).to_be_visible()


def test_a_script_in_a_mark_is_shown_and_does_not_run(page: Page, site: Site) -> None:
    """keeps: U-10. A dialog or an error in the console fails every test here."""
    go(page, site, "/crystals?q=visitor+form")

    expect(page.get_by_text(SCRIPT)).to_be_visible()
    assert page.locator("main script:not([type='application/json']), main img").count() == 0


def test_the_theme_follows_the_system_until_one_is_chosen(page: Page, site: Site) -> None:
    def background() -> object:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="light")
    go(page, site, "/status")
    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    switch = page.get_by_role("button", name="Theme")

    switch.click()  # from system to light
    assert (light != dark, background()) == (True, light)
    go(page, site, "/status")
    assert background() == light
    switch.click()
    switch.click()
    assert background() == dark


def test_nothing_scrolls_sideways_on_a_phone(page: Page, site: Site) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a size
    go(page, site, "/crystals?level=session")
    inner = str(page.locator("a.handle").first.get_attribute("href"))

    for address in [*(address for address, *_ in PAGES), inner, "/events/1"]:
        go(page, site, address)
        widest = page.evaluate("document.documentElement.scrollWidth")
        assert widest <= PHONE["width"], (address, widest)

    expect(page.get_by_role("navigation")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation").get_by_role("link", name="Trails").click()
    expect(heading(page)).to_have_text("Trails")


def test_a_link_lets_one_browser_in(browser: Browser, site: Site) -> None:
    """keeps: U-09"""
    link = site.link()
    with browser.new_context() as first, browser.new_context() as second:
        inside = first.new_page()
        inside.goto(link)
        answer = second.new_page().goto(link)

        expect(inside.get_by_role("heading", level=1)).to_be_visible()
        assert inside.url == site.address + "/"
        assert answer is not None
        assert answer.status == 401


def test_events_can_be_read_and_opened_on_a_phone(page: Page, site: Site) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a size
    go(page, site, "/events")
    row = page.locator("#rows tr").first
    expect(row).to_be_visible()
    what = row.locator("td.what").bounding_box()

    assert what is not None
    assert what["width"] > PHONE["width"] * 0.7
    row.locator("a.handle").click()
    expect(page).to_have_url(re.compile("/events/.+"))


def test_the_header_has_the_same_height_on_every_page_of_a_phone(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": PHONE["width"], "height": 3_000})  # higher than any page
    heights = set()
    for address, *_ in PAGES:
        go(page, site, address)
        box = page.locator("header.rail").bounding_box()
        assert box is not None
        heights.add(box["height"])

    assert len(heights) == 1
