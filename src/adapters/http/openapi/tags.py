"""What the groups of operations are for; the document and the pages made from it show these texts."""

from __future__ import annotations

TAG_DESCRIPTIONS = {
    "Authentication": "Log in, renew and end sessions, change a password.",
    "Service sessions": "Credentials with which programs manage the account, for named operations.",
    "Team": "The members of the account and their roles.",
    "Projects": "Parts of the account; each device is in one. A grant can cover a whole project.",
    "API keys": "Credentials of programs. A key can do nothing until a grant allows it.",
    "Catalog": "The boards and applications that a device can be registered with.",
    "Network": "How phones and devices reach this service.",
    "Cluster": "The instances that share the devices, and which of them owns which partition.",
    "Devices": "Register devices, read their state, manage their MQTT credentials.",
    "Provisioning": "Codes that devices trade for credentials of their own, and the claims that wait for approval.",
    "Groups": "Sets of devices of a project: as a filter, and to command, schedule and grant at once.",
    "Device types": "Command definitions that several devices share.",
    "Commands": "Send a command, follow its execution, define commands of your own.",
    "Schedules": "Five slots per device that switch at set times, once or by a recurrence rule.",
    "Rules": "Conditions on telemetry that send a command when they begin to hold.",
    "Grants": "What a key or member may do with a device, when, and how often.",
    "Notifications": "What you want to be told, and where: mail, browsers, ntfy, Telegram.",
    "Approvals": "Commands that wait for an Owner or Admin to decide.",
    "Telemetry": "What devices measure: history, intervals, latest values, export.",
    "Events": "The log of everything that happened in the account.",
    "Fleet": "The account as a document: export it, plan a change, apply it.",
    "Webhooks": "Send events to a URL of yours, signed, with retries.",
}


def tag_object(tag: str) -> dict[str, str]:
    """The tag with its description. A test holds that every tag of the program has one."""
    described = TAG_DESCRIPTIONS.get(tag)
    return {"name": tag} if described is None else {"name": tag, "description": described}
