"""The dashboard in a real browser: it loads, lives, unfolds, filters, changes and undoes; accessible, light and dark.

The pictures of the page about the dashboard are made here, when ``UPDATE_PICTURES`` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_world import Company, company, served

from engines import browser as browsers
from zae_limiter.dashboard.session import Session
from zae_limiter.stores.memory.store import MemoryStore

PICTURES = Path(__file__).parents[2] / "docs" / "images"
WIDE = {"width": 1400, "height": 900}
PHONE = {"width": 430, "height": 900}
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]

pytestmark = [
    pytest.mark.xdist_group("one after the other"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:uvicorn"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:websockets"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    missing = browsers.what_is_missing()
    if missing is not None:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    with browsers.started() as started:
        yield started


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="module")
def keys(store: MemoryStore) -> Company:
    return company(store)


@pytest.fixture(scope="module")
def address(store: MemoryStore, keys: Company) -> Iterator[str]:
    with served(store) as where:
        yield where


class Tab:
    """A page, and everything that it complained of: violations of the policy among them."""

    def __init__(self, browser: Any, size: dict[str, int], theme: str) -> None:
        self.page = browser.new_page(viewport=size, color_scheme=theme)
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: Any) -> None:
        refused = message.text.startswith("Failed to load resource")  # as the service should; the page shows it
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(message.text)

    def go(self, address: str) -> Any:
        self.page.goto(address)
        return self.page

    def check_accessibility(self) -> None:
        """Let axe judge the page. It comes by the debugger, where the policy of the page does not reach."""
        client = self.page.context.new_cdp_session(self.page)
        there = client.send("Runtime.evaluate", {"expression": "typeof axe"})["result"]["value"]
        if there == "undefined":
            client.send("Runtime.evaluate", {"expression": browsers.AXE.read_text(encoding="utf-8")})
        call = f"axe.run(document, {{runOnly: {RULES}}})"
        found = client.send(
            "Runtime.evaluate",
            {
                "expression": f"{call}.then(found => JSON.stringify(found.violations.map(one => "
                "[one.id, one.nodes.length, one.nodes[0].target.join(' '), one.nodes[0].failureSummary])))",
                "awaitPromise": True,
            },
        )
        assert found["result"].get("value") == "[]", found

    def picture(self, name: str, **how: Any) -> None:
        if os.environ.get("UPDATE_PICTURES"):
            self.page.screenshot(path=str(PICTURES / f"dashboard-{name}.png"), **how)


@pytest.fixture
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Tab]:
    size, theme = getattr(request, "param", (WIDE, "light"))
    tab = Tab(browser, size, theme)
    yield tab
    tab.page.close()
    assert tab.complaints == []


def rows(page: Any) -> list[str]:
    return [text.strip("▸ \n") for text in page.locator(".row .who").all_inner_texts()]


def test_it_says_how_things_are_and_unfolds_every_leg(tab: Tab, address: str, keys: Company) -> None:
    keys.live()
    page = tab.go(address)
    page.wait_for_selector(".row")
    assert "being refused" in page.inner_text("h1")
    assert page.title() == "Overview · default · zae-limiter"
    names = rows(page)
    assert names[0] == "ci-runner-7"
    assert {"search-api", "support-bot", "batch-nightly", "checkout-assist", "key-ann-dev"} <= set(names)
    assert "deploy-bot" not in names
    assert page.locator("canvas").count() == 1
    page.locator(".who", has_text="ci-runner-7").first.press("Enter")
    page.wait_for_selector(".leg .under:has-text('set by ann')")
    assert [leg.split("\n")[0].split(" ")[0] for leg in page.locator(".leg").all_inner_texts()] == [
        "ci-runner-7",
        "platform",
        "acme",
    ]
    first = page.locator(".leg").first.inner_text()
    assert "lacks" in first
    assert "own limit for this resource" in first
    assert ", resets " in page.locator(".leg").nth(2).inner_text()
    assert page.locator(".bar u").count() >= 1  # a debt is hatched
    page.locator(".who").first.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent").endswith(names[1])
    tab.picture("light")
    tab.check_accessibility()


def test_it_lives_and_keeps_focus_and_filters(tab: Tab, address: str, keys: Company) -> None:
    keys.live()
    page = tab.go(address)
    page.wait_for_selector(".row")
    page.keyboard.press("/")
    page.keyboard.type("search")
    page.wait_for_selector(".row >> nth=0")
    page.wait_for_selector("#attention:not(:has-text('ci-runner-7'))")
    assert set(rows(page)) == {"search-api", "key-ann-dev"}  # by its id, and by its team
    before = page.inner_text(".tile .value >> nth=1")
    keys.take("chat-widget", "claude-sonnet", 90, rpm=1)
    keys.limiter.write_pulse()
    page.locator(".tile .value").nth(1).filter(has_not_text=before).wait_for(timeout=8_000)
    assert page.evaluate("document.activeElement.type") == "search"
    page.fill("input[type=search]", "")
    page.click(".choice button:has-text('Debt')")
    page.wait_for_selector("button[aria-pressed=true]:has-text('Debt')")
    assert "batch-nightly" in rows(page)
    assert "checkout-assist" not in rows(page)
    page.click(".choice button:has-text('All')")
    page.fill("input[type=search]", "no such key")
    page.wait_for_selector("text=Nothing matches")


def test_a_limit_is_changed_after_a_preview_and_undone(tab: Tab, address: str, keys: Company) -> None:
    keys.live()
    page = tab.go(address)
    page.wait_for_selector(".row")
    page.locator(".who", has_text="ci-runner-7").first.click()
    page.click("text=Change limit…")
    page.wait_for_selector("dialog .diff")
    assert page.locator("dialog select").evaluate("box => box.selectedOptions[0].text") == "ci-runner-7 on gpt-4o"
    assert page.is_disabled("dialog .main")
    page.locator("dialog .edit").nth(1).get_by_role("button").nth(2).click()
    page.wait_for_selector("dialog .diff .changed")
    assert page.inner_text("dialog .diff .changed") == "~ tpm:40000/min  →  tpm:80000/min"
    assert "bound by" in page.inner_text("dialog .effect") or "next to bind" in page.inner_text("dialog .effect")
    tab.picture("change")
    tab.check_accessibility()
    page.fill("dialog .edit >> nth=1 >> input", "tpm:nonsense")
    page.wait_for_selector("dialog .error")
    assert page.is_disabled("dialog .main")
    page.fill("dialog .edit >> nth=1 >> input", "tpm:90k/min")
    page.wait_for_selector("dialog .diff .changed:has-text('90000')")
    page.click("dialog .main:enabled")
    page.wait_for_selector(".toast >> text=Undo")
    assert [limit.capacity for limit in keys.limiter.get_limits("ci-runner-7", resource="gpt-4o")] == [60, 90_000]
    event = keys.limiter.get_audit_events("ci-runner-7").items[0]
    assert (event.action, event.principal) == ("limits_set", "loopback")
    page.click(".toast >> text=Undo")
    page.wait_for_selector(".toast:has-text('as it was before')")
    assert [limit.capacity for limit in keys.limiter.get_limits("ci-runner-7", resource="gpt-4o")] == [60, 40_000]


def test_what_another_operator_changed_meanwhile_is_not_overwritten(tab: Tab, address: str, keys: Company) -> None:
    keys.live()
    page = tab.go(address + "/#/limits")
    page.locator("tr", has_text="batch-nightly on embeddings").get_by_text("Change…").click()
    page.wait_for_selector("dialog .diff")
    limits = keys.limiter.get_limits("batch-nightly", resource="embeddings")
    keys.limiter.set_limits("batch-nightly", [limits[0].__class__.per_minute("tpm", 999_000)], resource="embeddings")
    page.fill("dialog .edit input", "tpm:5k/min")
    page.wait_for_selector("dialog .diff .changed")
    page.click("dialog .main:enabled")
    page.wait_for_selector("dialog .error:has-text('Another operator')")
    keys.limiter.set_limits("batch-nightly", limits, resource="embeddings", principal="ann")


@pytest.mark.parametrize("tab", [(WIDE, "light"), (WIDE, "dark"), (PHONE, "dark")], indirect=True, ids=str)
def test_every_view_is_accessible_light_dark_and_on_a_phone(tab: Tab, address: str, keys: Company) -> None:
    keys.live()
    page = tab.go(address)
    page.wait_for_selector(".row")
    page.locator(".who").first.click()
    page.wait_for_selector(".leg .under:has-text('set ')")
    dark = page.evaluate("document.documentElement.dataset.theme") == "dark"
    narrow = page.evaluate("innerWidth") < 500
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if dark:
        tab.check_accessibility()
        tab.picture("phone" if narrow else "dark", full_page=narrow)
    views = {
        "entities": "button.who >> nth=0",
        "limits": "text=claude-sonnet",
        "usage?entity=search-api": "canvas >> nth=1",
        "usage?resource=gpt-4o": "canvas >> nth=1",
        "audit": ".changes li >> nth=0",
    }
    if dark:
        del views["usage?resource=gpt-4o"]
    for view, shown in views.items():
        page.goto(f"{address}/#/{view}")
        page.wait_for_selector(shown)
        if view == "entities":
            page.locator(".who", has_text="acme").click()
            page.locator(".who", has_text="platform").click()
            page.wait_for_selector(".who:has-text('ci-runner-7')")
            page.wait_for_selector("tr:has-text('ci-runner-7') .bar")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        tab.check_accessibility()
        if not dark:
            tab.picture(view.partition("?")[0] if "resource" not in view else "usage-by-key")


def test_the_theme_is_turned_and_remembered(tab: Tab, address: str) -> None:
    page = tab.go(address)
    page.click("[aria-label='Switch to dark']")
    page.reload()
    page.wait_for_selector("[aria-label='Switch to light']")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 21)"


def test_the_address_of_the_command_works_once_and_read_only_changes_nothing(
    browser: Any, store: MemoryStore, keys: Company
) -> None:
    keys.live()
    session = Session("ann", read_only=True)
    with served(store, session, (session.operation,)) as address:
        tab = Tab(browser, WIDE, "light")
        page = tab.go(f"{address}/#once={session.code}")
        page.wait_for_selector(".row")
        assert "once" not in page.url
        assert page.inner_text(".chip.info") == "read only"
        page.locator(".who").first.click()
        assert page.is_disabled("text=Change limit…")
        assert tab.complaints == []
        page.reload()
        page.wait_for_selector(".row")  # the token stays with the tab
        other = Tab(browser, WIDE, "light")
        page = other.go(f"{address}/#once=used")
        page.wait_for_selector("text=A token is needed")
        other.check_accessibility()
        page.fill("[aria-label=Token]", "wrong")
        page.click("text=Enter")
        page.wait_for_selector("text=send a token")
        for one in (tab, other):
            one.page.close()
