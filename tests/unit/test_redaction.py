"""Text of workers as strangers may read it: no path and no address of this place is left in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects.redaction import ADDRESS, LONGEST, PATH, redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no luck", "no luck"),
        ("cannot open /home/ada/secret.txt: no such file", f"cannot open {PATH} no such file"),
        ('File "/srv/My Documents/x.py", line 3', f"File {PATH}, line 3"),
        (r"C:\Users\Ada\x is missing", f"{PATH} is missing"),
        ("see ~ada", f"see {PATH}"),
        ("error:/etc/passwd", PATH),
        ("cannot read %2Fetc%2Fpasswd", f"cannot read {PATH}"),
        ("in ../notes.txt", f"in {PATH}"),
        ("connect to 10.0.0.5:5432 failed", f"connect to {ADDRESS} failed"),
        ("http://db.internal:80/x?y=z is down", f"{ADDRESS} is down"),
        ("refused ('10.1.2.3', 80)", f"refused {ADDRESS}"),
        ("connect(('db', 5432)) failed", f"connect({ADDRESS}) failed"),
        ("fe80::1%eth0 refused", f"{ADDRESS} refused"),
        ("redis:6379 refused", f"{ADDRESS} refused"),
        ("localhost is down", f"{ADDRESS} is down"),
        ("ask root@box", f"ask {ADDRESS}"),
        ("db.prod.example.com is slow", f"{ADDRESS} is slow"),
        ("printer.local", ADDRESS),
        ("and/or 3/4 n/a", "and/or 3/4 n/a"),
        ("timed out: try again at 12:30", "timed out: try again at 12:30"),
        ("std::vector of 1.2.3", "std::vector of 1.2.3"),
        ("two\nlines\tof  it", "two lines of it"),
        ("", ""),
    ],
)
def test_places_are_hidden_and_the_rest_stays(text: str, expected: str) -> None:
    """What is left says what went wrong, and not where."""
    assert redacted(text) == expected


WORDS = st.text(alphabet="abcXYZ019 .:-_'\"()[]{},;=<>", max_size=30)
NAMES = st.text(alphabet="abcxyz019._-", min_size=1, max_size=12)


@given(WORDS, st.lists(NAMES, min_size=2, max_size=4), WORDS, st.sampled_from(["/", "\\"]))
def test_no_path_survives_whatever_stands_around_it(
    before: str, names: list[str], after: str, slash: str
) -> None:
    """In quotes, in brackets, behind a colon: no part of a path is left with its slash."""
    assert slash not in redacted(f"{before}{slash}{slash.join(names)}{after}")


@given(WORDS, st.tuples(*[st.integers(0, 255)] * 4), WORDS)
def test_no_address_survives_whatever_stands_around_it(
    before: str, numbers: tuple[int, ...], after: str
) -> None:
    """An IPv4 address is found inside of words, too."""
    address = ".".join(map(str, numbers))
    assert address not in redacted(f"{before}{address}{after}")


@given(st.text(max_size=4000))
def test_any_text_becomes_one_short_line(text: str) -> None:
    """Nothing is too long, and nothing raises."""
    line = redacted(text)
    assert len(line) <= LONGEST
    assert "\n" not in line
