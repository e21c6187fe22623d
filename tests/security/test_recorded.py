"""The examples of responses in the OpenAPI document are what the program answers today."""

from __future__ import annotations

from adapters.http.documents.examples import recorded_answers
from security.recorded import record, shape


async def test_a_new_run_gives_answers_of_the_same_shape() -> None:
    answers, kept = await record(), recorded_answers()
    calls = sorted(answers.keys() | kept.keys())
    different = [call for call in calls if shape(answers.get(call)) != shape(kept.get(call))]
    assert different == [], "run `make examples` and commit what it writes"
