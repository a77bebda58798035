"""Chat templates: what they see, what they render, and how they fail."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.processor.template import MAX_SOURCE, ChatTemplate, TemplateError, message_variables
from services.processor.text_model import TextModel
from services.protocols.processor import ChatMessage, ChatPrompt

from .golden import CHATS

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'"
    " }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMMING = CHATML.replace("message['content']", "message['content'] | trim")


def chat(*contents: str, **fields: Any) -> ChatPrompt:
    roles = ("user", "assistant")
    messages = [ChatMessage(role=roles[i % 2], content=text) for i, text in enumerate(contents)]
    return ChatPrompt(messages=messages, **fields)


def render(source: str, prompt: ChatPrompt | None = None, **variables: str) -> str:
    return ChatTemplate(source, variables).render(prompt or chat("hi"))


@pytest.mark.parametrize("case", CHATS, ids=lambda case: case["name"])
def test_the_embedded_model_renders_the_golden_conversations(smollm2: TextModel, case: dict[str, Any]) -> None:
    messages = [ChatMessage(**message) for message in case["messages"]]
    assert smollm2.render(ChatPrompt(messages=messages)) == case["prompt_text"]


def test_without_a_generation_prompt_the_answer_is_not_begun(smollm2: TextModel) -> None:
    text = smollm2.render(chat("hi", add_generation_prompt=False))
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n")


def test_a_template_that_is_too_long_is_refused_before_it_is_compiled() -> None:
    with pytest.raises(TemplateError, match=f"{MAX_SOURCE + 1} characters; {MAX_SOURCE} is the most"):
        ChatTemplate("a" * (MAX_SOURCE + 1), {})


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "{{ a", "{% for x in y %}", "{{ x | no_such_filter }}", "{% include 'x' %}{% endfor %}",
     "{{ " + "(" * 5000 + ")" * 5000 + " }}"],
    ids=["no_condition", "unclosed", "no_end", "unknown_filter", "no_start", "nested"],
)  # fmt: skip
def test_a_template_that_does_not_compile_is_an_error(source: str) -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        ChatTemplate(source, {})


def test_a_template_cannot_read_others() -> None:
    for source in ("{% include '/etc/passwd' %}", "{% import '/etc/passwd' as x %}", "{% extends '/etc/passwd' %}"):
        with pytest.raises(TemplateError, match="the model's chat template failed"):
            render(source)


def test_its_variables_are_the_model_s_the_client_s_and_the_conversation() -> None:
    source = (
        "{{ bos_token }}|{{ enable_thinking }}|{{ messages|length }}|{{ tools is none }}|{{ add_generation_prompt }}"
    )
    prompt = chat("a", "b", template_kwargs={"enable_thinking": False})
    assert render(source, prompt, bos_token="<s>") == "<s>|False|2|True|True"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now"])
def test_a_client_cannot_set_what_is_the_engine_s(name: str) -> None:
    with pytest.raises(TemplateError, match=f"must not set '{name}'") as refused:
        render("a", chat("hi", template_kwargs={name: 1}))
    assert refused.value.field == "template_kwargs"


def test_tools_are_refused_by_a_template_that_knows_none() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    with pytest.raises(TemplateError, match="knows no tools") as refused:
        render(CHATML, chat("hi", tools=tools))
    assert refused.value.field == "tools"
    assert render("{{ tools[0].function.name }}", chat("hi", tools=tools)) == "f"
    assert render(CHATML, chat("hi", tools=[])) == render(CHATML)


def test_a_template_refuses_a_conversation_in_its_own_words() -> None:
    with pytest.raises(TemplateError, match="refuses the messages: Roles must alternate") as refused:
        render("{{ raise_exception('Roles must alternate') }}")
    assert refused.value.field == "messages"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError"), ("{{ none.x.y }}", "undefined|None"), ("{{ messages + 1 }}", "TypeError"),
        ("{{ messages[0].content.nope.nope }}", "has no attribute 'nope'"), ("{{ [][1:2:0] }}", "ValueError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError|longer"),
        ("{{ {}['a'].b }}", "undefined|no attribute"),
    ],
)  # fmt: skip
def test_whatever_a_template_does_wrong_is_the_request_s_failure(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=f"the model's chat template failed: .*({message})"):
        render(source)


def test_absent_fields_are_absent_and_arguments_are_an_object() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": [1]}'}}
    assert message_variables(ChatMessage(role="assistant", tool_calls=[call]), 0) == {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": [1]}}}],
    }
    assert message_variables(ChatMessage(role="tool", content="", tool_call_id="1", name="f"), 0) == {
        "role": "tool", "content": "", "tool_call_id": "1", "name": "f",
    }  # fmt: skip
    assert call["function"] == {"name": "f", "arguments": '{"x": [1]}'}, "the message itself stays as it is"


def test_arguments_that_are_no_json_are_refused_by_their_place() -> None:
    calls = [{"function": {"arguments": "{}"}}, {"function": {"arguments": "{"}}]
    with pytest.raises(TemplateError, match=r"messages\[3\]\.tool_calls\[1\]\.function\.arguments is not JSON"):
        message_variables(ChatMessage(role="assistant", tool_calls=calls), 3)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"function": {"arguments": ""}}, {"function": {"arguments": {}}}),
        ({"function": {"arguments": {"x": 1}}}, {"function": {"arguments": {"x": 1}}}),
        ({"function": {"name": "f"}}, {"function": {"name": "f"}}), ({"function": "f"}, {"function": "f"}), ({}, {}),
    ],
)  # fmt: skip
def test_calls_of_another_form_are_left_as_they_are(call: dict[str, Any], expected: dict[str, Any]) -> None:
    message = ChatMessage(role="assistant", tool_calls=[call])
    assert message_variables(message, 0)["tool_calls"] == [expected]


def test_the_time_that_a_template_tells_is_the_one_it_is_given() -> None:
    now = datetime.datetime(2024, 7, 26, 12, 30)
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", {}, now=lambda: now)
    assert template.render(chat("hi")) == "26 Jul 2024"


@pytest.mark.parametrize("layout", ["%999999d", "%Y" * 200])
def test_a_format_of_the_time_has_a_limit(layout: str) -> None:
    with pytest.raises(TemplateError, match="too long a format"):
        render("{{ strftime_now('" + layout + "') }}")


@pytest.mark.parametrize("source", [CHATML, TRIMMING])
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20))
def test_a_message_that_is_continued_ends_with_its_content(source: str, text: str) -> None:
    prompt = chat("hi", text, continue_final_message=True, add_generation_prompt=False)
    begun = text.lstrip() if source is TRIMMING else text
    assert render(source, prompt) == f"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{begun}"


def test_a_message_is_continued_though_its_content_occurs_behind_it() -> None:
    prompt = chat("hi", "<|im_end|>", continue_final_message=True, add_generation_prompt=False)
    assert render(CHATML, prompt).endswith("assistant\n<|im_end|>")


def test_continuing_and_beginning_another_message_exclude_each_other() -> None:
    with pytest.raises(TemplateError, match="set add_generation_prompt to false") as refused:
        render(CHATML, chat("hi", "a", continue_final_message=True))
    assert refused.value.field == "continue_final_message"


def test_a_message_without_content_cannot_be_continued() -> None:
    called = ChatMessage(role="assistant", tool_calls=[{}])
    prompt = ChatPrompt(messages=[called], continue_final_message=True, add_generation_prompt=False)
    with pytest.raises(TemplateError, match="no content to be continued"):
        render(CHATML, prompt)


def test_a_template_that_does_not_print_the_last_message_cannot_continue_it() -> None:
    for source in ("{{ messages[0].content }}", "{{ messages[-1].content | upper | replace('<', '') }}"):
        prompt = chat("hi", "a", continue_final_message=True, add_generation_prompt=False)
        with pytest.raises(TemplateError, match="does not print the last message"):
            render(source, prompt)


def test_a_message_that_is_printed_twice_is_continued_at_its_last_place_without_a_trace_of_the_mark() -> None:
    prompt = chat("a", continue_final_message=True, add_generation_prompt=False)
    assert render("[{{ messages[0].content }}] {{ messages[0].content }} end", prompt) == "[a] a"
