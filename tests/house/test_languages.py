"""Whatever the service can say has a text in every language file of the dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adapters.translator import MessageCatalogTranslator
from support.service_texts import LOCALES, VALUES, sent_sentences

LANGUAGES = sorted(path.stem for path in LOCALES.glob("*.js"))
PLACEHOLDER = re.compile(r"\{(\w+)!?\}")


def texts_of(language: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads((LOCALES / f"{language}.service.json").read_text())
    return texts


def test_the_dashboard_offers_the_languages_that_have_files() -> None:
    offered = re.search(r"LANGUAGES = \{(.*?)\}", (LOCALES.parent / "core/i18n.js").read_text())
    assert offered is not None
    assert sorted(re.findall(r"(\w+):", offered[1])) == sorted(["en", *LANGUAGES])
    assert sorted(path.name for path in LOCALES.glob("*.json")) == [f"{each}.service.json" for each in LANGUAGES]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_of_the_service_has_a_text(language: str) -> None:
    """A new message, or one with other words, needs its text here: the collector reads the source."""
    sent, texts = sent_sentences() | VALUES, texts_of(language)
    assert sorted(sent - texts.keys()) == [], "without a text"
    assert sorted(texts.keys() - sent) == [], "not sent any more"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_names_each_value_of_its_sentence(language: str) -> None:
    lost = {
        key: text for key, text in texts_of(language).items() if set(PLACEHOLDER.findall(text)) != set(PLACEHOLDER.findall(key))
    }
    assert lost == {}


def test_the_collector_finds_the_sentences_of_each_kind() -> None:
    """A collector that finds nothing would let everything pass."""
    found = sent_sentences()
    assert {
        "Relay is {1}",  # the log
        "Grant {1} allows this.",  # an explanation
        "must be {1} to {2} seconds.",  # a detail of a problem
        "The email address or the password is wrong.",
        "offline for {1} min",  # a notification
        "You are invited to Latchboard",  # a mail
    } <= found


def test_a_value_may_be_a_sentence_of_its_own() -> None:
    german = MessageCatalogTranslator()
    text = "Slot 3 did not switch ON: it was due 90 s ago, and this slot runs at most 60 s late."
    assert german.translate(text, "de") == (
        "Platz 3 hat nicht eingeschaltet: es war vor 90 s fällig, und dieser Platz schaltet höchstens 60 s zu spät."
    )
    assert german.translate("Pump: offline for 5 min", "de") == "Pump: seit 5 min offline"


def test_what_has_no_text_stays_as_it_is() -> None:
    translator = MessageCatalogTranslator()
    assert translator.translate("Relay is ON", "en") == "Relay is ON"
    assert translator.translate("Relay is ON", "xx") == "Relay is ON"
    assert translator.translate("a name that somebody typed", "de") == "a name that somebody typed"
    assert Path(LOCALES / "de.service.json").is_file()
