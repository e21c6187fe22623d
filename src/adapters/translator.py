"""The sentences of the service in other languages, from the language files that the dashboard uses too.

A sentence is known by its English form, with its values as {1}, {2}, …: `"Relay is {1}": "Relais: {1}"`. A value may be a
sentence of its own; `{1!}` in the translation leaves it as it is, such as the name of a command. `core/service_texts.js` of the
dashboard reads the files in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

ASSETS = "adapters.http.dashboard"
LOCALES = files(ASSETS) / "assets" / "locales"
SUFFIX = ".service.json"
LANGUAGES = ("en", *sorted(each.name.removesuffix(SUFFIX) for each in LOCALES.iterdir() if each.name.endswith(SUFFIX)))
"""Those that there are texts in (ISO 639); first the one that the source is written in."""
PLACEHOLDER = re.compile(r"\{(\d)\}")
PLACE = re.compile(r"\{(\d)(!?)\}")
MAX_DEPTH = 4


class MessageCatalogTranslator:
    """Implements `Translator`. A file is read when its language is first asked for."""

    def translate(self, text: str, language: str) -> str:
        texts = _load(language)
        return text if texts is None else texts.translate(text) or text


class _LanguageTranslator:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._exact = texts
        patterned = [key for key in texts if PLACEHOLDER.search(key)]
        patterned.sort(key=lambda key: -len(PLACEHOLDER.sub("", key)))  # the one that says most
        self._patterns = [(_pattern(key), texts[key]) for key in patterned]

    def translate(self, text: str, depth: int = 0) -> str | None:
        """None if there is no text for it."""
        if text in self._exact:
            return self._exact[text]
        if depth == MAX_DEPTH:
            return None
        for pattern, translation in self._patterns:
            found = pattern.fullmatch(text)
            if found is not None:
                return self._fill(translation, found.groups(), depth)
        return self._after_name(text, depth)

    def _fill(self, translation: str, values: Sequence[str], depth: int) -> str:
        def value_at(place: re.Match[str]) -> str:
            value = values[int(place[1]) - 1]
            return value if place[2] else self.translate(value, depth + 1) or value

        return PLACE.sub(value_at, translation)

    def _after_name(self, text: str, depth: int) -> str | None:
        """`Pump: offline for 5 min`: of a subject, what follows the name."""
        name, colon, rest = text.rpartition(": ")
        translated = self.translate(rest, depth + 1) if colon else None
        return None if translated is None else f"{name}: {translated}"


def _pattern(key: str) -> re.Pattern[str]:
    literals = PLACEHOLDER.split(key)[::2]
    return re.compile("(.*?)".join(map(re.escape, literals)), re.DOTALL)


@cache
def _load(language: str) -> _LanguageTranslator | None:
    """None for English, and for a language that there is no file of."""
    file = LOCALES / f"{language}{SUFFIX}"
    return _LanguageTranslator(json.loads(file.read_text("utf-8"))) if file.is_file() else None
