"""Stop strings in text that comes in pieces."""

from __future__ import annotations

import collections
from collections.abc import Sequence


class StopAutomaton:
    """All stop strings of a request as one automaton (Aho and Corasick, 1975), shared by its completions.

    A state is the longest end of the text so far that begins a stop string. Its depth is therefore exactly how much
    text may still turn out to be part of one, and each character costs one step, however many strings there are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty string, which would stop everything."""
        self.next: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.found: list[str | None] = [None]
        """The longest stop string that ends in a state."""
        for stop in stops:
            if not stop:
                raise ValueError("a stop string must not be empty")
            self._add(stop)
        self._link()

    def _add(self, stop: str) -> None:
        state = 0
        for character in stop:
            following = self.next[state].get(character)
            if following is None:
                following = self.next[state][character] = len(self.next)
                self.next.append({})
                self.depth.append(self.depth[state] + 1)
                self.found.append(None)
            state = following
        self.found[state] = stop

    def _link(self) -> None:
        """Failure links, breadth first: where to go on when a character does not follow."""
        self.fail = [0] * len(self.next)
        queue = collections.deque(self.next[0].values())
        while queue:
            state = queue.popleft()
            for character, following in self.next[state].items():
                self.fail[following] = self.step(self.fail[state], character)
                queue.append(following)
            if self.found[state] is None:
                self.found[state] = self.found[self.fail[state]]

    def step(self, state: int, character: str) -> int:
        """The state behind one more character."""
        while state and character not in self.next[state]:
            state = self.fail[state]
        return self.next[state].get(character, 0)


class StopMatcher:
    """Watches one completion's text, and holds back what may be the beginning of a stop string.

    The match that is complete first wins; of several that are complete with the same character, the longest. So the
    outcome does not depend on where the text is cut into pieces.
    """

    def __init__(self, automaton: StopAutomaton, *, include_stop: bool = False) -> None:
        self._automaton = automaton
        self._include_stop = include_stop
        self._state = 0
        self._held = ""
        self.matched: str | None = None
        """The stop string that was found; the text ends there."""

    @property
    def held(self) -> str:
        """Text that is held back."""
        return self._held

    def feed(self, text: str) -> str:
        """Take more text; what of it can be given out. Nothing, once a stop string was found."""
        if self.matched is not None:
            return ""
        automaton, state = self._automaton, self._state
        for number, character in enumerate(text, 1):
            state = automaton.step(state, character)
            found = automaton.found[state]
            if found is not None:
                return self._stop(self._held + text[:number], found)
        self._state = state
        joined = self._held + text
        keep = automaton.depth[state]
        self._held = joined[len(joined) - keep :]
        return joined[: len(joined) - keep]

    def pass_by(self, text: str) -> str:
        """Take text in which stop strings do not count: all of it, and what was held back, can be given out."""
        if self.matched is not None:
            return ""
        given = self._held + text
        self._held, self._state = "", 0
        return given

    def flush(self) -> str:
        """The text has ended: what was held back is no stop string."""
        return self.pass_by("")

    def _stop(self, text: str, found: str) -> str:
        self.matched, self._held = found, ""
        return text if self._include_stop else text[: len(text) - len(found)]
