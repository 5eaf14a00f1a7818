# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a log to what went wrong: the code, the cause, and what to change, with the numbers the log itself gives.

The knowledge is the table in ``known_failures``; this module only reads logs with it. Real logs carry container
names, process tags, levels, dates and colours, their lines are wrapped, and several processes write at once. So
prefixes are taken off, white space is ignored, and a message may continue on the next lines of the same process.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from .known_failures import FATAL, HARMLESS, SPECIFIC, TABLE, WARNING, WRAPPER, Known

__all__ = ["FATAL", "WARNING", "Diagnosis", "diagnose", "first_fatal", "masked", "message_of"]

LONGEST_LINE = 400  # characters of a log line that are shown; engines dump whole configurations into one line
WRAPPED_OVER = 5  # a message that a terminal or collector has wrapped is looked for over so many lines
INTERLEAVED = 2000  # so many of the last lines are read again process by process when nothing specific was found
LOOP = 3  # restarts from which the loop itself is the finding, with the first attempt's reason in it


@dataclass(frozen=True)
class Diagnosis:
    """One finding in a log. ``line`` is the message that shows it, ``lines`` the few around it worth printing."""

    code: str
    cause: str
    remedy: str
    retryable: bool
    line: str
    source: tuple[str, ...] = ()
    severity: str = FATAL
    values: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a module's result or a filter."""
        return {
            "code": self.code,
            "cause": self.cause,
            "remedy": self.remedy,
            "retryable": self.retryable,
            "line": self.line,
            "lines": list(self.lines),
            "severity": self.severity,
            "source": list(self.source),
            "values": dict(self.values),
        }


class _Line(NamedTuple):
    tag: str  # the process: "EngineCore_DP0", "Worker_TP0", "APIServer", or ""
    level: str
    place: str  # "core.py:1510"
    message: str


# --- prefixes -------------------------------------------------------------------------------------------------------

_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|#x1B|\^\[)\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(
    r"""\s*(?:
      \((?P<tag>[A-Za-z][\w.:-]*)(?:\s+rank=\d+)?\s*(?:pid=\d+)(?:,\s*ip=[^)]*)?\)
    | (?P<level>INFO|WARNING|ERROR|DEBUG|CRITICAL|WARN|FATAL)(?:
          \s+\d\d-\d\d\s\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\s+\[?(?P<place>[\w./<>-]+\.pyx?:\d+)\])?
        | \s+\[?(?P<place2>[\w./<>-]+\.pyx?:\d+)\]
        | \s+\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*
        | :(?=\s{2,}|\s*$)
        )
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?=\s|$)    # docker logs -t, collectors
    | [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d\ [\w.-]+\ [\w./@-]+(?:\[\d+\])?:(?=\s|$)        # journal
    | [\w][\w.-]*\s*[|│](?=\s|$)                                                            # container name and bar
    | [|│](?=\s)
    | \[rank\d+\]:
    | \[resource\.labels[^\]]*\]
    | \[?(?P<place3>[\w./<>-]+\.py:\d+)\]
    )""",
    re.VERBOSE,
)
_DAEMON = re.compile(r'^time="[^"]*" level=\w+ msg="((?:[^"\\]|\\.)*)"')


def parse_line(raw: str) -> _Line:
    text = raw
    if "[" in text and ("\x1b" in text or "1b[" in text.lower() or "033[" in text or "^[[" in text):
        text = _COLOUR.sub("", text)
    tag = level = place = ""
    position = 0
    while True:
        match = _PREFIX.match(text, position)
        if match is None or match.end() == position:
            break
        groups = match.groupdict()
        tag = groups["tag"] or tag
        level = groups["level"] or level
        place = groups["place"] or groups["place2"] or groups["place3"] or place
        position = match.end()
    if position and text[position : position + 1] == " ":
        position += 1  # the rest is the message's own indentation
    message = text[position:].rstrip()
    if message.startswith("time="):
        daemon = _DAEMON.match(message)
        if daemon is not None:
            message = daemon.group(1).replace('\\"', '"')
    return _Line(tag, level, place, message)


def message_of(line: str) -> str:
    """The message of a log line, without container name, process tag, level, date, place and colours."""
    return parse_line(line).message.strip()


# --- patterns -------------------------------------------------------------------------------------------------------


class _Pattern(NamedTuple):
    known: Known
    regex: re.Pattern[str]
    anchor: str


def _anchor(pattern: str) -> str:
    """The longest literal part that every match must contain; it is searched first because that is fast."""
    best = run = ""
    depth = 0
    index = 0
    while index < len(pattern):
        char = pattern[index]
        literal = ""
        if char == "\\":
            index += 1
            literal = pattern[index] if not pattern[index].isalnum() else ""
        elif char == "[" and depth == 0:
            index = pattern.index("]", index + 2)
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == " ":
            index += 2 if pattern[index + 1 : index + 2] == "?" else 1
            continue  # searched for in text without white space
        elif char not in ".^$*+?{}|[]":
            literal = char
        following = pattern[index + 1] if index + 1 < len(pattern) else ""
        if char == "{":
            index = pattern.index("}", index)
        if depth == 0 and literal and following not in ("?", "*", "{"):
            run += literal
        else:
            best, run = max(best, run, key=len), ""
        index += 1
    return max(best, run, key=len).lower()


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ?", " ").replace(" ", " ?"), re.IGNORECASE)


def _compile(known: Known, pattern: str) -> _Pattern:
    return _Pattern(known, _regex(pattern), _anchor(pattern))


_PATTERNS = tuple(_compile(known, pattern) for known in TABLE for pattern in known.patterns)
_CERTAIN = tuple(one for one in _PATTERNS if one.known.certain and one.known.rank == SPECIFIC)
_HARMLESS = tuple((_regex(text), _anchor(text)) for text in HARMLESS)
_NEEDS = {one: _regex(one.needs) for one in TABLE if one.needs}
_OVER = {one: _regex(one.over_when) for one in TABLE if one.over_when}
_UNLESS = {one: _regex(one.unless) for one in TABLE if one.unless}


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _lower(text: str) -> str:
    lowered = text.lower()
    # A few characters become two in lower case; offsets must stay those of the original.
    return lowered if len(lowered) == len(text) else "".join(c.lower() if c.isascii() else c for c in text)


def is_harmless(message: str) -> bool:
    lowered = _lower(_squeeze(message))
    return any(anchor in lowered and regex.search(message) is not None for regex, anchor in _HARMLESS)


# --- secrets --------------------------------------------------------------------------------------------------------

_SECRETS = (
    (re.compile(r"\b(hf|sk|pk|ghp|gho|glpat|xox[abp])([_-])[A-Za-z0-9_-]{6,}"), r"\1\2***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), r"\1 ***"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:***@"),
    (re.compile(r"(?i)\b(received)=[^\s,]+"), r"\1=***"),
    (re.compile(r"(--(?:api-key|hf-token)[= ])\S+"), r"\1***"),
    (
        re.compile(
            r"(?i)((?:api[_-]?key|master[_-]?key|token|password|passwd|secret)s?['\"]?\s*[=:]\s*)"
            r"(?!None\b|True\b|False\b|null\b)(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,;)}\]]+)"
        ),
        r"\1***",
    ),
)


def masked(text: str) -> str:
    """A line as it may be shown: without keys and tokens, and not longer than a person reads."""
    for regex, mask in _SECRETS:
        text = regex.sub(mask, text)
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"


# --- templates ------------------------------------------------------------------------------------------------------

_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")


def _fill(template: str, values: Mapping[str, str]) -> str:
    """``{name}`` is a value; ``[text {name}|other text]`` is the first alternative whose values are all known."""

    def choose(match: re.Match[str]) -> str:
        for alternative in match.group(1).split("|"):
            if all(name in values for name in _NAME.findall(alternative)):
                return alternative
        return ""

    chosen = _OPTIONAL.sub(choose, template)
    return _NAME.sub(lambda match: values.get(match.group(1), "?"), chosen)


_ARGUMENTS = re.compile(r"(?:non-default args: |args: Namespace\()")
_ARGUMENT = re.compile(r"['\"]?\b(\w+)['\"]?\s*[:=]\s*(-?\d+(?:\.\d+)?|True|False|'[^']*'|\"[^\"]*\")")


def _options_of(lines: Sequence[_Line]) -> dict[str, str]:
    """What the engine says it was started with; the remedies show these as present values."""
    for line in lines:
        found = _ARGUMENTS.search(line.message) if "rgs: " in line.message else None
        if found is not None:
            return {name: value.strip("'\"") for name, value in _ARGUMENT.findall(line.message[found.end() :])}
    return {}


# --- reading --------------------------------------------------------------------------------------------------------


class _Hit(NamedTuple):
    known: Known
    first: int  # of the line
    values: Mapping[str, str]
    last: int  # the last line the message reaches to


def _is_routine(message: str) -> bool:
    """Answered requests and statistics without a queue: most of a long log, and never the reason for anything."""
    return message.endswith('" 200 OK') or "Waiting: 0 reqs" in message


class _Text:
    """Lines with their white space taken out, in one string, so that a literal is found by one fast search."""

    def __init__(self, lines: Sequence[_Line], numbers: Sequence[int]) -> None:
        self.lines = lines
        self.numbers = numbers
        self.squeezed = ["" if _is_routine(line.message) else _squeeze(line.message) for line in lines]
        self.starts: list[int] = []
        parts: list[str] = []
        position = 0
        previous: Optional[_Line] = None
        for line, piece in zip(lines, self.squeezed):
            if previous is not None and not _continues(previous, line):
                parts.append("\n")
                position += 1
            self.starts.append(position)
            parts.append(piece)
            position += len(piece)
            previous = line
        self.whole = _lower("".join(parts))
        self.harmless: dict[int, bool] = {}

    def lines_with(self, anchor: str) -> list[int]:
        found: list[int] = []
        position = self.whole.find(anchor)
        while position != -1:
            index = bisect_right(self.starts, position) - 1
            if not found or found[-1] != index:
                found.append(index)
            following = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.whole)
            position = self.whole.find(anchor, max(position + 1, following))
        return found

    def harmless_line(self, index: int) -> bool:
        if index not in self.harmless:
            self.harmless[index] = is_harmless(self.text(index))
        return self.harmless[index]

    def text(self, index: int) -> str:
        if (
            self.lines[index].message.startswith("    ")
            and index
            and self.lines[index - 1].message.startswith('  File "')
        ):
            return ""  # a line of source in a traceback
        return " ".join(self.lines[index].message.split())

    def match(self, pattern: _Pattern, index: int) -> Optional[_Hit]:
        single = pattern.regex.search(self.text(index))
        first = last = index
        if single is None:
            while first > 0 and index - first < 2 and _continues(self.lines[first - 1], self.lines[first]):
                first -= 1
            while (
                last + 1 < len(self.lines)
                and last - index < WRAPPED_OVER
                and _continues(self.lines[last], self.lines[last + 1])
            ):
                last += 1
            pieces = [self.text(number) for number in range(first, last + 1)]
            single = pattern.regex.search("".join(pieces))
            if single is None:
                return None
            length = 0
            for number, piece in enumerate(pieces, first):
                length += len(piece)
                if length <= single.start():
                    first = number + 1
                if length >= single.end():
                    last = number
                    break
        values = {name: value for name, value in single.groupdict().items() if value}
        return _Hit(pattern.known, self.numbers[first], values, self.numbers[last])


def _continues(line: _Line, following: _Line) -> bool:
    if following.level or following.place:
        return line[:3] == following[:3]
    return not following.tag or following.tag == line.tag


_QUIET = ("INFO", "DEBUG", "WARNING", "WARN")


def _hits(text: _Text) -> list[_Hit]:
    hits: list[_Hit] = []
    for pattern in _PATTERNS:
        for index in text.lines_with(pattern.anchor):
            if text.harmless_line(index) or (pattern.known.rank != SPECIFIC and text.lines[index].level in _QUIET):
                continue
            hit = text.match(pattern, index)
            if hit is not None:
                hits.append(hit)
                if not pattern.known.over_when:
                    break
    return hits


_START = re.compile(r"non-default args: |args: Namespace\(")


def _first_attempt(lines: Sequence[_Line]) -> Sequence[_Line]:
    starts = [i for i, line in enumerate(lines) if "rgs: " in line.message and _START.search(line.message)]
    return lines[: starts[1]] if len(starts) > 1 else lines


def _split(text_or_lines: Union[str, Iterable[str]]) -> list[_Line]:
    raw = [text_or_lines] if isinstance(text_or_lines, str) else text_or_lines
    # A progress bar writes its line again and again after a carriage return.
    return [
        parse_line(part) for line in raw for part in line.replace("\r", "\n").split("\n") if part and not part.isspace()
    ]


def diagnose(
    text_or_lines: Union[str, Iterable[str]],
    *,
    exit_code: Optional[int] = None,
    oom_killed: bool = False,
    restarts: int = 0,
    options: Optional[Mapping[str, Any]] = None,
) -> list[Diagnosis]:
    """Explain a log (of an engine, a gateway, Docker or Compose): most specific first, warnings last.

    ``exit_code`` and ``oom_killed`` are what Docker says about the ended container, ``restarts`` how often it was
    started again, ``options`` the values it was started with (shown in remedies where the log does not say).
    Empty when the log shows nothing wrong and nothing says that the process has ended.
    """
    lines = _split(text_or_lines)
    attempt = _first_attempt(lines)
    found = _find(attempt, options or {})
    if len(attempt) < len(lines) and not any(one.severity == FATAL for one in found):
        attempt = lines
        found = _find(attempt, options or {})
    ended = _ended(attempt, found, exit_code, oom_killed, options or {})
    if ended is not None:
        found.insert(0, ended)
    if restarts >= LOOP:
        found.insert(0, _loop(restarts, found))
    return found


def first_fatal(line: str) -> Optional[Diagnosis]:
    """For a stream: the diagnosis when this one line alone is certain to end the start; otherwise None."""
    if " INFO " in line[:120]:
        return None
    parsed = parse_line(line)
    if parsed.level in _QUIET or parsed.message.startswith("    "):
        return None  # a line of source in a traceback; the exception's own line comes a little later
    message = " ".join(parsed.message.split())
    lowered = _lower(_squeeze(message))
    for pattern in _CERTAIN:
        if pattern.anchor in lowered:
            match = pattern.regex.search(message)
            if match is not None and not is_harmless(message):
                hit = _Hit(pattern.known, 0, {k: v for k, v in match.groupdict().items() if v}, 0)
                return _diagnosis(hit, [parsed], {})
    return None


def _find(lines: Sequence[_Line], options: Mapping[str, Any]) -> list[Diagnosis]:
    text = _Text(lines, range(len(lines)))
    hits = _hits(text)
    if not any(hit.known.rank == SPECIFIC and hit.known.severity == FATAL for hit in hits):
        # Perhaps another process has written between the parts of a wrapped message: read each process by itself.
        numbers = sorted(range(max(0, len(lines) - INTERLEAVED), len(lines)), key=lambda number: lines[number].tag)
        if numbers and lines[numbers[0]].tag != lines[numbers[-1]].tag:
            hits.extend(_hits(_Text([lines[number] for number in numbers], numbers)))
    known_options = {name: str(value) for name, value in options.items() if isinstance(value, (int, float, str))}
    known_options.update(_options_of(lines))
    chosen: dict[str, _Hit] = {}
    for hit in hits:
        needs, unless = _NEEDS.get(hit.known), _UNLESS.get(hit.known)
        if needs is not None and not needs.search(text.whole):
            continue
        if unless is not None and unless.search(text.whole):
            continue
        if hit.known.over_when and _recovered(hit.known, lines, hit.last):
            continue
        before = chosen.get(hit.known.code)
        if before is None or (hit.known.rank, hit.first) < (before.known.rank, before.first):
            chosen[hit.known.code] = hit
    replaced = {code for hit in chosen.values() for code in hit.known.replaces}
    best = min((hit.known.rank for hit in chosen.values() if hit.known.severity == FATAL), default=SPECIFIC)
    ordered = sorted(
        (
            hit
            for code, hit in chosen.items()
            if code not in replaced and (hit.known.severity != FATAL or hit.known.rank == best)
        ),
        key=lambda hit: (hit.known.severity != FATAL, hit.known.rank, hit.first),
    )
    return [_diagnosis(hit, lines, known_options) for hit in ordered]


def _recovered(known: Known, lines: Sequence[_Line], number: int) -> bool:
    """Whether a later line shows that a state that looked bad has passed."""
    return any(_OVER[known].search(line.message) for line in lines[number + 1 :])


def _diagnosis(hit: _Hit, lines: Sequence[_Line], options: Mapping[str, str]) -> Diagnosis:
    known = hit.known
    values = {**options, **hit.values}
    if known.derive is not None:
        values.update(known.derive(values))
    if hit.last == hit.first:
        line = lines[hit.first].message.strip()
    else:
        line = " ".join(lines[number].message.strip() for number in range(hit.first, hit.last + 1))
    shown: tuple[str, ...] = (line,)
    if known.rank != SPECIFIC:
        shown = tuple(_last_errors(lines)) or shown
    shown = tuple(masked(one) for one in shown)
    own = {name: masked(value) for name, value in values.items() if name in hit.values or name not in options}
    safe = {name: masked(value) for name, value in values.items()}
    return Diagnosis(
        code=known.code,
        cause=_fill(known.cause, safe),
        remedy=_fill(known.remedy, safe),
        retryable=known.retryable,
        line=masked(line),
        source=known.source,
        severity=known.severity,
        values=own,
        lines=shown,
    )


# --- when nothing is known ------------------------------------------------------------------------------------------

_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w]*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Fault|Warning)\b(?::|$|\()"
)
_ENGINE = re.compile(r"engine|worker", re.IGNORECASE)
_ALIVE = re.compile(r'"(?:GET|POST) /|Application startup complete|throughput:')


def _is_error(line: _Line) -> bool:
    message = line.message
    if "Error" not in message and "Exception" not in message and line.level not in ("ERROR", "CRITICAL", "FATAL"):
        return message.lower().startswith(("error", "fatal", "panic"))
    if _EXCEPTION.match(message):
        return "Warning" not in message.split(":", 1)[0]
    return (
        line.level in ("ERROR", "CRITICAL", "FATAL")
        and bool(message.strip())
        and not message.startswith((" ", "Traceback", "Dumping"))
        and not set(message.strip()) <= set("^~")
    )


def _last_errors(lines: Sequence[_Line], count: int = 4) -> list[str]:
    """The last error lines of the engine's processes (of any process when those wrote none), wrappers left out."""
    errors = [line for line in lines if _is_error(line)]
    of_engine = [line for line in errors if _ENGINE.search(line.tag)] or errors
    texts: list[str] = []
    for line in of_engine:
        text = line.message.strip()
        wrapper = any(p.known.rank == WRAPPER and p.regex.search(text) for p in _PATTERNS)
        if not wrapper and text not in texts:
            texts.append(text)
    return texts[-count:]


_SIGNALS = {132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}


def _ended(
    lines: Sequence[_Line],
    found: Sequence[Diagnosis],
    exit_code: Optional[int],
    oom_killed: bool,
    options: Mapping[str, Any],
) -> Optional[Diagnosis]:
    """What is to say beyond the table: killed by the kernel, or an end that nobody has described yet."""
    known = any(one.severity == FATAL for one in found)
    errors = [masked(text) for text in _last_errors(lines)]
    if oom_killed:
        limit = options.get("memory")
        return Diagnosis(
            code="container_oom_killed",
            cause="The kernel killed the container because it used more main memory than it may (not GPU memory).",
            remedy="Raise the container's memory limit"
            + (f" (now {limit})" if limit else "")
            + " or free memory on the host; loading needs about the size of the largest weight file plus the caches "
            "(mm_processor_cache_gb, cpu offload), for each of the tensor_parallel_size processes.",
            retryable=False,
            line=errors[-1] if errors else "OOMKilled: true",
            lines=tuple(errors) or (f"exit code {exit_code}, OOMKilled: true",),
        )
    if known:
        return None
    if exit_code is None and not _looks_ended(lines):
        return None
    last = errors or [masked(line.message.strip()) for line in lines[-3:] if line.message.strip()]
    how = "" if exit_code is None else f" with exit code {exit_code}"
    signal = _SIGNALS.get(exit_code or 0)
    if signal is not None:
        how += f" ({signal})"
    if exit_code in (137, 139, 135, 132, 134):
        advice = {
            137: "Something killed it from outside: look for the kernel's out-of-memory killer (dmesg) and for a "
            "person or a script that stopped it.",
            135: "SIGBUS mostly means that shared memory was full: set shm_size to at least 8gb or ipc: host.",
            132: "SIGILL means that this processor lacks instructions the image was built for.",
        }.get(exit_code, "It crashed in native code: compare driver and CUDA versions, then try another image.")
    else:
        advice = "This failure is not in the table: read the lines above it in the log."
    return Diagnosis(
        code="unknown_failure",
        cause=f"The engine ended{how}; its last error lines are shown." if errors else f"The process ended{how}.",
        remedy=advice + " When the remedy is found, add it to the table of known failures.",
        retryable=False,
        line=last[-1] if last else "",
        lines=tuple(last),
        values={} if exit_code is None else {"exit_code": str(exit_code)},
    )


def _looks_ended(lines: Sequence[_Line]) -> bool:
    """Whether the log ends in an exception that nothing came after; a failed request is followed by others."""
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if line.level in ("INFO",) or _ALIVE.search(line.message):
            return False
        if _EXCEPTION.match(line.message) and "Warning" not in line.message.split(":", 1)[0]:
            return not any("in ASGI application" in before.message for before in lines[max(0, number - 400) : number])
        if re.match(r"(?:[\w.-]+: )?error: |error response from daemon", line.message, re.IGNORECASE):
            return True
    return False


def _loop(restarts: int, found: Sequence[Diagnosis]) -> Diagnosis:
    root = next((one for one in found if one.severity == FATAL), None)
    cause = f"The container was started again {restarts} times, which repeats an error that does not pass by itself."
    remedy = "Stop the container; only start it again when the cause is removed."
    if root is None:
        return Diagnosis("restart_loop", cause, remedy, False, "", _LOOP_SOURCE)
    return replace(
        root,
        code="restart_loop",
        cause=f"{cause} First attempt: {root.code}: {root.cause}",
        remedy=f"{remedy} {root.remedy}",
        retryable=False,
        source=_LOOP_SOURCE + root.source,
        values={**root.values, "restarts": str(restarts), "first_code": root.code},
    )


_LOOP_SOURCE = ("https://github.com/eugr/spark-vllm-docker/issues/257",)
