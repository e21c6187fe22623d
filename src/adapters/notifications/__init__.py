"""Sends notifications: mail, Web Push, ntfy, Telegram."""
