"""One form for what is typed in many."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.typeahead.blocklist import Blocklist
from schemas.typeahead.events import PHRASE_BLOCKED, PHRASE_UNBLOCKED
from schemas.typeahead.folding import folded, folded_prefix

ANY = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("iIİıi\u0307\u0301\u0323 \t\u200dßΣςﬁＩ\u00adéÉ"),
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("typed", "term"),
    [
        ("  Waiting \t for  GODOT ", "waiting for godot"),
        ("cafe\u0301", "caf\u00e9"),
        ("CAFÉ", "caf\u00e9"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("ΟΔΟΣ", "οδοσ"),
        ("οδος", "οδοσ"),
        ("ﬁne", "fine"),
        ("Ｇｏｄｏｔ", "godot"),
        ("go\u200bd\u00adot\x07", "godot"),
        ("北京 烤鸭", "北京 烤鸭"),
        ("\u200b \u00ad", ""),
    ],
)
def test_forms_that_look_alike_fold_alike(typed: str, term: str) -> None:
    assert folded(typed) == term


def test_the_four_is_of_turkish_are_one() -> None:
    spellings = ("İSTANBUL", "ISTANBUL", "ıstanbul", "istanbul", "I\u0307STANBUL", "i\u0307stanbul")
    assert {folded(one) for one in spellings} == {"istanbul"}
    assert folded("Iğdır") == folded("IĞDIR") == "iğdir"


@given(ANY)
def test_folding_is_done_once_and_for_every_normal_form(text: str) -> None:
    once = folded(text)
    assert folded(once) == once
    assert {folded(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")} == {once}


def test_a_finished_word_is_not_the_beginning_of_another() -> None:
    assert folded_prefix(" New ") == "new "
    assert folded_prefix("New") == "new"
    assert folded_prefix("  ") == ""


def blocking(*phrases: str) -> Blocklist:
    made = Blocklist()
    for phrase in phrases:
        made.fold(PHRASE_BLOCKED.fullname, {"phrase": folded(phrase), "reason": "r"})
    return made


@pytest.mark.parametrize(
    "query",
    ["free money", "FREE  Money now", "get free-money!", "ｆｒｅｅ money", "fr\u200bee money"],
)
def test_a_phrase_blocks_what_has_its_words_in_it(query: str) -> None:
    assert blocking("Free money").blocks(folded(query))


@pytest.mark.parametrize(
    "query", ["free", "money free", "freemoney", "free of money", "carefree money"]
)
def test_a_phrase_blocks_nothing_else(query: str) -> None:
    assert not blocking("Free money").blocks(folded(query))


def test_a_sign_is_a_word() -> None:
    assert blocking("\U0001f4a9").blocks(folded("so\U0001f4a9much"))
    assert not blocking("\U0001f4a9").blocks("so much")


def test_the_newest_word_about_a_phrase_counts() -> None:
    made = blocking("free money", "gold")
    made.fold(PHRASE_UNBLOCKED.fullname, {"phrase": "free money"})
    made.fold(PHRASE_UNBLOCKED.fullname, {"phrase": "never blocked"})
    assert not made.blocks("free money")
    assert made.blocks("gold")
    assert made.phrases == {"gold": "r"}
