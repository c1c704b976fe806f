"""Logging in to the console at a real identity provider: code flow with PKCE, renewed tokens, logging out."""

import json
from collections.abc import AsyncIterator

import pytest

from dragoman.asgi.console import FOLDER
from tests.browser import Browser
from tests.console.axe import serious_violations
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.identity.node_provider import node_provider
from tests.servers import running_socket_server

RESOURCE = "https://dragoman.example"
LIFETIME_S = 10
"""Of a token: it is renewed, and its socket closed, while the test plays."""
STORED = "localStorage.getItem('dragoman.key')"


@pytest.fixture(scope="module")
async def login_page(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsolePage]:
    """A window of a console whose users log in at a provider."""
    if not (FOLDER / "index.html").is_file():
        pytest.skip("the console is not built: run `make console`")
    async with (
        node_provider(token_lifetime_s=LIFETIME_S) as issuer,
        running_socket_server(
            tmp_path_factory.mktemp("login"),
            oidc_issuer=issuer,
            oidc_audience=[RESOURCE],
            oidc_client_id="dragoman-console",
            oidc_login_scope="openid offline_access dragoman:use",
            oidc_login_parameters=[f"resource={RESOURCE}", "prompt=consent"],
            oidc_leeway_s=0,
        ) as server,
    ):
        page = ConsolePage(await chromium.page(), server.connection.url, None, SCREENSHOTS)
        await page.resize(1280, 860)
        yield page
        await page.close()


async def log_in(page: ConsolePage, name: str) -> None:
    await page.press("Log in")
    await page.until("document.querySelector('input[name=login]')")
    await page.run(f"document.querySelector('input[name=login]').value = '{name}'")
    await page.run("document.querySelector('input[name=password]').value = 'any'")
    await page.run("document.querySelector('form').submit()")
    await page.until("document.querySelector('input[name=prompt][value=consent]')")
    await page.run("document.querySelector('form').submit()")


async def test_a_user_logs_in_works_beyond_a_tokens_lifetime_and_logs_out(login_page: ConsolePage) -> None:
    page = login_page
    await page.open("memories")
    await page.wait_for_text("and then return here")
    assert await serious_violations(page) == []
    await page.screenshot("login")
    page.console.clear()  # browsers note every 401
    await log_in(page, "ann")
    await page.until("document.querySelector('.rail [aria-current=page]')")
    assert await page.run("location.href") == f"{page.url}/#/memories", "without the code, at the page as before"
    await page.press("Conversations", ".rail")
    page.console.clear()  # the provider's pages ask for fonts
    first = await page.run(STORED)
    assert first.startswith("eyJ")
    await page.write("Message", "hello")
    await page.page.press("Enter")
    await page.wait_for_text("hello", ".session")
    await page.write("Message", "an unsent draft")
    await page.until(f"{STORED} !== {first!r}")
    await page.page.press("Enter")
    await page.wait_for_text("an unsent draft", ".turn")
    await page.screenshot("login-done")
    assert [each for each in page.console if "401" not in each] == [], "a token may expire on a slow machine"
    page.console.clear()
    await page.press("Sign out")
    await page.until("document.querySelector('#op\\\\.logoutForm, form[action*=\"session/end\"]')")
    await page.run("document.querySelector('button[name=logout]').click()")
    await page.wait_for_text("and then return here")
    assert await page.run(f"[{STORED}, localStorage.getItem('dragoman.login')]") == [None, None]
    page.console.clear()


async def test_a_login_that_is_refused_says_why(login_page: ConsolePage) -> None:
    page = login_page
    await page.open()
    await page.press("Log in")
    await page.until("document.querySelector('a[href*=abort]')")
    await page.run("document.querySelector('a[href*=abort]').click()")
    await page.wait_for_text("The login did not succeed: End-User aborted interaction")
    await page.screenshot("login-refused")
    page.console.clear()


async def test_an_answer_that_nobody_asked_for_logs_nobody_in(login_page: ConsolePage) -> None:
    page = login_page
    await page.page.go(f"{page.url}/?code=somebodys&state=guessed")
    await page.wait_for_text("and then return here")
    assert await page.run(STORED) is None
    page.console.clear()


PENDING = "sessionStorage.getItem('dragoman.pending-login')"


@pytest.mark.parametrize(
    "answer", ["code=somebodys&state=guessed", "code=somebodys", "code=x&state=STATE&iss=https://evil"]
)
async def test_an_answer_to_another_login_or_of_another_provider_logs_nobody_in(
    login_page: ConsolePage, answer: str
) -> None:
    """Otherwise a link could log the user in as an attacker, or hand the code's proof to another provider."""
    page = login_page
    await page.open()
    await page.press("Log in")
    await page.until("document.querySelector('input[name=login]')")
    await page.page.go(f"{page.url}/healthz")
    state = json.loads(await page.run(PENDING))["state"]
    assert len(state) == 43, "32 random bytes"
    await page.page.go(f"{page.url}/?{answer.replace('STATE', state)}")
    await page.wait_for_text("The login did not succeed")
    assert await page.run(f"[{STORED}, {PENDING}, location.search]") == [None, None, ""]
    page.console.clear()
