"""The headers that responses of the API have beside those of HTTP itself, and which operation sends which.

An operation declares none. `headers_of` reads the compiled code of its handler, and of what the handler calls in `adapters.http`,
for the names of headers. So the documents follow the code, and a new route needs no list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}
RESPONSE_HEADERS: Mapping[str, Schema] = {
    "X-Request-Id": {"schema": _TEXT, "description": "Identifies this request in the log."},
    "Link": {
        "schema": {"type": "string", "examples": ['</api/v1/approvals?limit=50&cursor=YXBwcm92YWxz>; rel="next"']},
        "description": "The next page (RFC 8288); absent on the last one.",
    },
    "X-Total-Count": {
        "schema": {"type": "integer", "minimum": 0},
        "description": "How many entries match, on all pages together.",
    },
    "ETag": {
        "schema": {"type": "string", "examples": ['"5c9e1f0a7b3d2e4f60718293a4b5c6d7"']},
        "description": "Changes with everything that the object shows (RFC 9110, 8.8.3). Send it as `If-Match` with a change.",
    },
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait before the next try."},
    "WWW-Authenticate": {
        "schema": {"type": "string", "examples": ['Bearer realm="latchboard"']},
        "description": "How to authenticate (RFC 6750).",
    },
    "Idempotency-Replayed": {
        "schema": {"type": "string", "const": "true"},
        "description": "Present if this is the stored response to an earlier request with the same `Idempotency-Key`.",
    },
    "RateLimit-Policy": {
        "schema": {"type": "string", "examples": ['"grant";q=10;w=60']},
        "description": "Present if the rate limit of a grant or of a service session applied: its quota `q` in any `w` seconds.",
    },
    "RateLimit": {
        "schema": {"type": "string", "examples": ['"grant";r=9;t=42']},
        "description": "The remaining quota (`r`), and the seconds (`t`) until it grows by one.",
    },
    "Content-Disposition": {"schema": _TEXT, "description": "The file name for a browser that saves the response."},
}
REQUEST_HEADERS: Mapping[str, str] = {
    "If-Match": "The `ETag` that you read. The request fails with 412 if the object has changed since.",
    "If-None-Match": "The `ETag` that you have. If it is still the present one, the answer is 304 without a body.",
}
BY_STATUS: Mapping[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After", "RateLimit-Policy", "RateLimit"),
    503: ("Retry-After",),
}
"""Of errors, whatever the operation (errors.py)."""

_PACKAGE = "adapters.http."
_BY_LOWER_CASE = {name.lower(): name for name in (*RESPONSE_HEADERS, *REQUEST_HEADERS)}
_WORD = re.compile(r"\w+")


def headers_of(handler: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the headers in the handler's code, in the order of the tables above; of requests and of responses."""
    found: set[str] = set()
    left: list[Any] = [handler]
    seen: set[CodeType] = set()
    while left:
        function = left.pop()
        if not isinstance(function, FunctionType) or function.__code__ in seen or not function.__module__.startswith(_PACKAGE):
            continue
        seen.add(function.__code__)
        names, texts = _names_and_texts(function)
        values = [*_values(function, names)]
        texts |= {value for value in values if isinstance(value, str)}
        found |= {_BY_LOWER_CASE[text.lower()] for text in texts if text.lower() in _BY_LOWER_CASE}
        left += [*values, *(method for value in values for method in _methods(value, names))]
    return tuple(name for name in dict.fromkeys((*RESPONSE_HEADERS, *REQUEST_HEADERS)) if name in found)


def _names_and_texts(function: FunctionType) -> tuple[set[str], set[str]]:
    """What the code names, and the texts in it, its inner functions included."""
    names = {word for annotation in function.__annotations__.values() for word in _WORD.findall(str(annotation))}
    texts: set[str] = set()
    codes: list[CodeType] = [function.__code__]
    while codes:
        code = codes.pop()
        names |= {*code.co_names}
        constants: list[Any] = [*code.co_consts]
        while constants:
            constant = constants.pop()
            if isinstance(constant, CodeType):
                codes.append(constant)
            elif isinstance(constant, tuple):
                constants += constant
            elif isinstance(constant, str):
                texts.add(constant)
            elif isinstance(constant, bytes):
                texts.add(constant.decode("latin-1"))
    return names, texts


def _values(function: FunctionType, names: set[str]) -> Iterator[Any]:
    """The globals that it names, and what it closes over."""
    yield from (function.__globals__[name] for name in names if name in function.__globals__)
    for cell in function.__closure__ or ():
        yield cell.cell_contents


def _methods(value: Any, names: set[str]) -> Iterator[Any]:
    """The functions with these names of a class, or of an object's class, with those that it inherits."""
    kind = value if isinstance(value, type) else type(value)
    for base in kind.__mro__ if kind.__module__.startswith(_PACKAGE) else ():
        for name, member in vars(base).items():
            if name in names:
                yield getattr(member, "__func__", member)
