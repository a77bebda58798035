"""The text side of a model: its tokenizer and its chat templates, out of a GGUF file or a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.models.gguf_file import GgufFile
from services.models.store import ModelFiles
from services.protocols.processor import ChatPrompt

from .gguf_tokenizer import read_gguf_tokenizer
from .hf_tokenizer import read_hf_tokenizer, read_tokenizer_config, token_content
from .template import ChatTemplate, TemplateError
from .tokenizer import Tokenizer, TokenizerError

TOOL_USE = "tool_use"
"""Name of the template that a model has for conversations with tools, if it has one of their own."""
_DEFAULT = "default"
_JINJA_FILE = "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class TextModel:
    """A tokenizer with the chat templates that belong to it."""

    tokenizer: Tokenizer
    templates: Mapping[str, ChatTemplate]
    """By name: `default`, and perhaps others."""

    @property
    def has_chat_template(self) -> bool:
        """Whether it can render conversations."""
        return _DEFAULT in self.templates

    def render(self, prompt: ChatPrompt) -> str:
        """A conversation's text. Raises TemplateError."""
        if not self.has_chat_template:
            raise TemplateError("the model has no chat template: give it text, or set the option chat_template")
        name = TOOL_USE if prompt.tools and TOOL_USE in self.templates else _DEFAULT
        return self.templates[name].render(prompt)


def load_text_model(files: ModelFiles, template_path: Path | None = None) -> TextModel:
    """Read it. template_path: a jinja file to use instead of the model's own templates.

    Raises ModelFileError, TokenizerError or TemplateError, each naming the file.
    """
    if files.format == "gguf":
        file = GgufFile.open(files.path)
        tokenizer, sources = read_gguf_tokenizer(file), _gguf_templates(file)
        variables = _gguf_variables(tokenizer)
    else:
        config = read_tokenizer_config(files.path)
        tokenizer, sources = read_hf_tokenizer(files.path, config), _hf_templates(files.path, config)
        variables = {key: text for key, value in config.items() if (text := token_content(value)) is not None
                     and key.endswith("_token")}  # fmt: skip
    origin = files.path
    if template_path is not None:
        origin, sources = template_path, {_DEFAULT: _read_text(template_path)}
    try:
        templates = {name: ChatTemplate(source, variables) for name, source in sources.items()}
    except TemplateError as error:
        raise TemplateError(f"{origin}: {error}. Set the option chat_template to a file with a mended one") from error
    return TextModel(tokenizer, templates)


def _gguf_variables(tokenizer: Tokenizer) -> dict[str, str]:
    ids = tokenizer.ids
    return {
        "bos_token": tokenizer.token_text(ids.bos), "eos_token": tokenizer.token_text(ids.eos),
        "unk_token": tokenizer.token_text(ids.unknown), "pad_token": tokenizer.token_text(ids.padding),
    }  # fmt: skip


def _gguf_templates(file: GgufFile) -> dict[str, str]:
    key = "tokenizer.chat_template"
    found = {_DEFAULT: file.metadata(key, None), TOOL_USE: file.metadata(f"{key}.{TOOL_USE}", None)}
    for name, source in found.items():
        if source is not None and not isinstance(source, str):
            raise TemplateError(f"{file.path}: the chat template {name!r} is {type(source).__name__}, not text")
    return {name: source for name, source in found.items() if source is not None}


def _hf_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """As transformers looks for them: a file of its own before the configuration, which has one or a list of them."""
    path = folder / _JINJA_FILE
    if path.is_file():
        return {_DEFAULT: _read_text(path)}
    found = config.get("chat_template")
    if found is None:
        found = _json_template(folder / "chat_template.json")
    if found is None:
        return {}
    if isinstance(found, str):
        return {_DEFAULT: found}
    try:
        named = {entry["name"]: entry["template"] for entry in found}
    except (TypeError, KeyError):
        named = {}
    if not named or not all(isinstance(text, str) for text in (*named, *named.values())):
        raise TokenizerError(f"{folder}: chat_template is neither text nor a list of named templates")
    return named


def _json_template(path: Path) -> Any:
    """What a processor's chat_template.json has; None if there is no such file."""
    if not path.is_file():
        return None
    text = _read_text(path)
    try:
        return json.loads(text)["chat_template"]
    except (ValueError, TypeError, KeyError) as error:
        raise TemplateError(f"{path}: is not a JSON object with a chat_template: {error}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TemplateError(f"{path}: cannot be read: {error}") from error
