"""A timeline as a picture: self-contained SVG, and a page that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .timeline import PHASES, Phase

COLOURS = {"spawn": "#9aa5b1", "import": "#4f8ad9", "wait": "#e4e7eb", "setup": "#3c9d6b"}
_LEFT, _WIDTH, _ROW, _TOP = 130, 760, 26, 44


def to_svg(phases: Sequence[Phase], title: str) -> str:
    """The picture, 920 wide."""
    services = list(dict.fromkeys(phase.service for phase in phases))
    total = max((phase.end_s for phase in phases), default=0.0) or 1.0
    height = _TOP + _ROW * len(services) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="920" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for row, service in enumerate(services):
        y = _TOP + row * _ROW
        parts.append(f'<text x="12" y="{y + 16}">{escape(service)}</text>')
        parts += [_bar(phase, y, total) for phase in phases if phase.service == service]
    parts += [*_axis(total, _TOP + _ROW * len(services)), *_legend(), "</svg>"]
    return "\n".join(parts)


def to_html(phases: Sequence[Phase], title: str) -> str:
    """A page of its own, without anything from elsewhere."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<body style="margin:2em auto;max-width:960px">{to_svg(phases, title)}</body></html>'
    )


def _bar(phase: Phase, y: int, total: float) -> str:
    x = _LEFT + phase.start_s / total * _WIDTH
    width = max(0.5, phase.seconds / total * _WIDTH)
    stroke = ' stroke="#c81e1e" stroke-width="2"' if phase.critical else ""
    text = f"{phase.service} {phase.name}: {phase.seconds:.2f} s" + (", critical" if phase.critical else "")
    return (
        f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="18" fill="{COLOURS[phase.name]}"{stroke}>'
        f"<title>{escape(text)}</title></rect>"
    )


def _axis(total: float, y: int) -> list[str]:
    parts = []
    for tick in range(6):
        x = _LEFT + tick / 5 * _WIDTH
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{y}" stroke="#cbd2d9" stroke-dasharray="2 3"/>')
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle" fill="#52606d">{total * tick / 5:.2f} s</text>')
    return parts


def _legend() -> list[str]:
    parts = []
    for index, name in enumerate(PHASES):
        x = 480 + index * 80
        parts.append(f'<rect x="{x}" y="13" width="12" height="12" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 17}" y="24">{name}</text>')
    parts.append('<rect x="800" y="13" width="12" height="12" fill="none" stroke="#c81e1e" stroke-width="2"/>')
    parts.append('<text x="817" y="24">critical</text>')
    return parts
