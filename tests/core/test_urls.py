"""The URLs of images and files that clients send."""

import pytest

from dragoman.core.content import File, Image, Text
from dragoman.core.input_checks import InputLimits, check_content
from dragoman.core.refusals import ImageUnsupported, Invalid
from dragoman.core.tools import AgentSpec, Capabilities

LIMITS = InputLimits()
PNG = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("url", "is_accepted"),
    [
        ("http://example.org/a.pdf", True),
        ("https://example.org:8443/a.pdf?b=c#d", True),
        ("data:application/pdf;base64,AAAA", True),
        ("data:text/plain;charset=utf-8;base64,AAA=", True),
        ("data:video/*;base64,", True),
        ("https://", False),
        ("ftp://example.org/a.pdf", False),
        ("file:///etc/passwd", False),
        ("upload:alice/a.png", False),
        (f"attachment:{'0' * 64};application/pdf;4", False),
        ("data:application/pdf,AAAA", False),
        ("data:application/pdf;base64,A*", False),
        ("", False),
    ],
)
def test_files_have_web_urls_or_data_uris(url: str, is_accepted: bool) -> None:
    content = (Text("read"), File(url))
    if is_accepted:
        check_content(AgentSpec(name="reading"), content, LIMITS)
    else:
        with pytest.raises(Invalid) as refused:
            check_content(AgentSpec(name="reading"), content, LIMITS)
        assert refused.value.path == "messages.content[1]"


@pytest.mark.parametrize(
    ("url", "http", "data"),
    [
        ("https://example.org/a.png", True, False),
        (PNG, False, True),
        ("http://example.org/a.png", True, False),
        ("HTTPS://example.org", True, False),
        ("https://", False, False),
        ("https:///a.png", False, False),
        ("https://:443/a.png", False, False),
        ("https://[::1/a.png", False, False),
        ("https://exa mple.org/a.png", False, False),
        ("https://example.org/a.png\n", False, False),
        ("ftp://example.org/a.png", False, False),
        ("file:///etc/passwd", False, False),
        ("javascript:alert(1)", False, False),
        ("data:text/html;base64,AAAA", False, False),
        ("data:image/png,AAAA", False, False),
        ("DATA:image/PNG;BASE64,AA==", False, True),
        ("data:image/png;base64,A*", False, False),
        ("data:image/png;base64,A=AA", False, False),
        ("data:image/png;base64,A===", False, False),
        ("data:image/png;base64,AA,AA", False, False),
        ("data:image/png;base64,AAA\u017f", False, False),  # a long s, whose upper case is S
        ("data:image/png;base64,AAAA\n", False, False),
        ("", False, False),
    ],
)
def test_images_that_an_agent_takes(url: str, http: bool, data: bool) -> None:
    for image_http in (False, True):
        for image_data in (False, True):
            spec = AgentSpec(name="seeing", capabilities=Capabilities(image_http=image_http, image_data=image_data))
            takes = (http and image_http) or (data and image_data)
            content = (Text("look"), Image(url))
            if takes:
                check_content(spec, content, LIMITS)
            else:
                with pytest.raises(ImageUnsupported):
                    check_content(spec, content, LIMITS)
