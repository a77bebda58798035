"""The text side of a model, out of GGUF files and Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.models.load_error import MissingFile
from services.models.store import ModelFiles
from services.processor.template import TemplateError
from services.processor.text_model import load_text_model
from services.processor.tokenizer import TokenizerError
from services.protocols.processor import ChatMessage, ChatPrompt

from .gguf_vocabulary import write_vocabulary
from .test_hf_tokenizer import byte_level

CHAT = ChatPrompt(messages=[ChatMessage(role="user", content="hi")])
TOOLS = ChatPrompt(messages=CHAT.messages, tools=[{"type": "function"}])


def gguf(folder: Path, **changed: Any) -> ModelFiles:
    return ModelFiles(write_vocabulary(folder / "vocabulary.gguf", **changed), "m", "gguf")


def hf(folder: Path, config: dict[str, Any] | None = None, **files: str) -> ModelFiles:
    """files: their text by their name, _ for the last dot."""
    byte_level().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", **(config or {})}))
    for name, text in files.items():
        (folder / ".".join(name.rsplit("_", 1))).write_text(text)
    return ModelFiles(folder, "m", "hf")


def test_a_gguf_file_s_template_sees_its_special_tokens(tmp_path: Path) -> None:
    files = gguf(tmp_path, chat_template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}|")
    assert load_text_model(files).render(CHAT) == "<s>hi</s>|"


def test_a_folder_s_template_sees_its_special_tokens(tmp_path: Path) -> None:
    files = hf(tmp_path, {"bos_token": {"content": "<s>"}, "chat_template": "{{ bos_token }}{{ eos_token }}!"})
    assert load_text_model(files).render(CHAT) == "<s></s>!"


def test_what_is_configured_beside_special_tokens_is_not_for_templates(tmp_path: Path) -> None:
    files = hf(tmp_path, {"model_max_length": 7, "add_bos_token": True, "chat_template": "{{ add_bos_token }}|"})
    assert load_text_model(files).render(CHAT) == "|"


def test_a_conversation_with_tools_gets_the_template_for_it(tmp_path: Path) -> None:
    of_file = gguf(tmp_path, **{"chat_template": "plain", "chat_template.tool_use": "{{ tools|length }} tools"})
    of_folder = hf(tmp_path, {"chat_template": [
        {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools|length }} tools"},
    ]})  # fmt: skip
    for files in (of_file, of_folder):
        model = load_text_model(files)
        assert (model.render(CHAT), model.render(TOOLS)) == ("plain", "1 tools")


def test_a_folder_s_template_file_comes_before_its_configuration_s(tmp_path: Path) -> None:
    files = hf(tmp_path, {"chat_template": "configured"}, chat_template_json='{"chat_template": "json"}')
    assert load_text_model(files).render(CHAT) == "configured"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert load_text_model(files).render(CHAT) == "jinja"


def test_a_folder_s_json_template_is_the_last_place_to_look(tmp_path: Path) -> None:
    assert load_text_model(hf(tmp_path, chat_template_json='{"chat_template": "json"}')).render(CHAT) == "json"


def test_the_option_s_file_is_used_for_every_conversation(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("mine {{ tools and tools|length }}")
    model = load_text_model(gguf(tmp_path, **{"chat_template": "a", "chat_template.tool_use": "{{ tools }}"}), path)
    assert (model.render(CHAT), model.render(TOOLS)) == ("mine None", "mine 1")


def test_a_model_without_a_template_says_so_when_it_is_asked_to_render(tmp_path: Path) -> None:
    for files in (gguf(tmp_path), hf(tmp_path)):
        model = load_text_model(files)
        assert not model.has_chat_template
        with pytest.raises(TemplateError, match="has no chat template: give it text, or set the option chat_template"):
            model.render(CHAT)


def test_a_template_that_does_not_compile_names_its_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"vocabulary\.gguf: .*does not compile: .*\(line 2\)"):
        load_text_model(gguf(tmp_path, chat_template="a\n{% if %}"))
    path = tmp_path / "mine.jinja"
    path.write_text("{{ unclosed")
    with pytest.raises(TemplateError, match=r"mine\.jinja: .*does not compile"):
        load_text_model(gguf(tmp_path), path)


def test_a_template_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"none\.jinja: cannot be read"):
        load_text_model(gguf(tmp_path), tmp_path / "none.jinja")


@pytest.mark.parametrize("template", [7, {"name": "default"}, [{"name": "default"}], ["text"], [],
                                      [{"name": "default", "template": 7}]])  # fmt: skip
def test_a_folder_with_a_template_of_another_kind_is_refused(tmp_path: Path, template: Any) -> None:
    with pytest.raises(TokenizerError, match="neither text nor a list of named templates"):
        load_text_model(hf(tmp_path, {"chat_template": template}))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"chat_template": 7}'])
def test_a_broken_json_template_names_its_file_or_folder(tmp_path: Path, text: str) -> None:
    with pytest.raises((TokenizerError, TemplateError), match=str(tmp_path)):
        load_text_model(hf(tmp_path, chat_template_json=text))


def test_a_gguf_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="the chat template 'default' is int, not text"):
        load_text_model(gguf(tmp_path, chat_template=7))


def test_a_file_that_is_not_there_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"none\.gguf"):
        load_text_model(ModelFiles(tmp_path / "none.gguf", "m", "gguf"))
