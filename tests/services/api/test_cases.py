"""Every case of api.jsonl, against a backend that counts."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.cases.expectations import API_CASES, Case, check_refusal, check_stream, check_whole

from .fake_backend import FakeBackend

pytestmark = pytest.mark.anyio

NOT_YET = {"json_schema": "response_format", "guided_choice": "guided_choice"}
"""Cases that need guided decoding, with the field that is refused meanwhile."""
_NAMED = [pytest.param(case, id=case["name"]) for case in API_CASES]


def test_there_are_cases() -> None:
    assert len(API_CASES) == 52
    assert set(NOT_YET) <= {case["name"] for case in API_CASES}


@pytest.mark.parametrize("case", _NAMED)
async def test_a_case_gets_its_answer_and_the_server_goes_on(
    case: Case, client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    answer = await client.request(case["method"], case["path"], json=case["body"])

    if case["name"] in NOT_YET:
        assert answer.status_code == 400
        check_refusal({"expect": {"error_param": NOT_YET[case["name"]]}}, answer.json())
        assert "not supported" in answer.json()["error"]["message"]
        return
    assert answer.status_code == case["status"], answer.text
    if answer.status_code != 200:
        check_refusal(case, answer.json())
    elif case.get("expect", {}).get("stream"):
        assert answer.headers["content-type"].startswith("text/event-stream")
        check_stream(case, answer.content)
    else:
        repeated = await client.request(case["method"], case["path"], json=case["body"])

        def again() -> dict[str, Any]:
            data: dict[str, Any] = repeated.json()
            return data

        check_whole(case, answer.json(), again)
    assert backend.open == 0
    assert (await client.get("/ready")).status_code == 200
