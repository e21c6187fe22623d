"""The form of a mail with a code or a link, and its choice by the language of who gets it."""

from __future__ import annotations

from dataclasses import dataclass

from domain.accounts.model import User
from domain.accounts.ports import HasUsers, Translator


@dataclass(frozen=True, slots=True)
class TranslatableMailTemplate:
    """In English, with its values as {name}. It is translated before the values are filled in: no value can look like text."""

    subject: str
    text: str

    def write(self, translator: Translator, language: str, **values: object) -> tuple[str, str]:
        """Subject and text."""
        return translator.translate(self.subject, language), translator.translate(self.text, language).format(**values)


async def choose_language(tx: HasUsers, user: User | None, requested: str) -> str:
    """The one that the user has stored, else that of the request."""
    stored = None if user is None else await tx.users.find_language(user.user_id)
    return stored or requested
