"""What an agent should do about an answer. A refusal is a result with advice and no exception: trying again does not help."""

from __future__ import annotations

from typing import Any

from adapters.mcp.api_client import McpApiError

ADVICE = {
    "UNAUTHENTICATED": "The API key is missing, wrong, disabled or deleted. Ask the person who gave it to you. Do not try again.",
    "GRANT_MISSING": "This key may do nothing on this device. Ask a person to grant it; name the device and the command.",
    "COMMAND_NOT_GRANTED": "This key may run other commands on this device, not this one. Use explain_access, or ask a person.",
    "SCOPE_TOO_NARROW": "This key may read this device only. Ask a person for a wider grant if the task needs one.",
    "GRANT_EXPIRED": "The permission has ended. Ask a person to renew it.",
    "OUTSIDE_GRANT_WINDOW": "The key may not do this now. explain_access says from when; wait, or ask a person.",
    "RATE_LIMITED": "Too many commands. Wait `retryAfter` seconds, then try once.",
    "DEVICE_DISABLED": "A person has disabled the device. Do not look for a way around it.",
    "INVALID_PARAMS": "Correct the parameters: list_commands has their schema.",
    "UNKNOWN_COMMAND": "The device has no such command: list_commands names those that it has.",
    "NOT_FOUND": "There is no such thing for this key. list_devices shows the devices that it may see.",
    "UNAVAILABLE": "It is not known to be done. Look with get_execution or list_executions before you send it again.",
}
OUTCOME_ADVICE = {
    "QUEUED": "The device is offline. The command runs only if the device returns before expiresAt; see get_execution.",
    "SENT": "The device has not answered yet. Do not report it as done; see get_execution.",
    "ACKED": "The device has the command and works on it. Do not report it as done; see get_execution.",
    "FAILED": "The device could not do it; `result` says why. Tell the person.",
    "TIMED_OUT": "The device did not answer, so it is unknown whether it acted. Tell the person before you try again.",
    "EXPIRED": "The device was away until the deadline. The command was not run and never will be.",
}


def refusal(error: McpApiError) -> dict[str, Any]:
    code = str(error.body.get("error", "UNKNOWN"))
    advice = ADVICE.get(code, "Nothing was done. Read the message, and ask a person if it does not help.")
    return {"allowed": False, **error.body, "advice": advice}


def waiting(approval: dict[str, Any]) -> dict[str, Any]:
    advice = (
        "A person must approve this command; nothing has been switched. Call wait_for_approval with this approvalId, and tell "
        "the person that the request waits. Do not send the command again."
    )
    return {"status": "WAITING_FOR_APPROVAL", "approvalId": approval["approvalId"], "advice": advice}


def outcome(execution: dict[str, Any]) -> dict[str, Any]:
    """The execution, with advice unless the device has confirmed it."""
    advice = OUTCOME_ADVICE.get(str(execution.get("status")))
    return execution if advice is None else {**execution, "advice": advice}
