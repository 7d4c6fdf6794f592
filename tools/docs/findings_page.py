"""Makes the text of docs/findings.md from the rules and from the measurements of tools/judge (docs/judge.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opspan.findings import RULES, Rule
from opspan.findings.rule import SEVERITIES, name_totals

HEAD = """\
# Findings

`opspan findings FILE` says what is wrong with a run, the costliest first; `opspan summary` names them in a line, and
`opspan.load(FILE).findings()` gives them as a frame ([json.md](json.md#findings) has the columns).

- **Time at stake** is how much sooner the run would have ended, *at most*, if the cause were gone, and the share is of
  how long the run took, until all that its steps launched was done. Processes and ranks run side by side, so nothing is
  summed over them: a run takes as long as the process whose steps take longest, and at stake is the time of the process
  that loses most. Of what is summed over the devices of a process, the mean of its devices counts.
- **A condition** goes with the time at stake where no trace can say what would be instead: how long products would take
  on tensor cores, with other sizes or as many blocks as the device has room for, and how long a backward would take.
  Then the finding names what it takes for granted: "12ms at stake if they took half of their time".
- **What a run would gain** without loads, waits, copies, or what took longer in a step, is found by going through the
  run again without them: all else takes as long as it did, and waits for what it waited for ([path](analysis.md#path)).
  Each process is gone through by itself; its collectives take as long as they did. Which events streams wait for says
  hardly any file: the first work that is launched after a call that lets a stream wait is taken to wait for what was
  launched last on another stream, and work that begins as other work ends, for no other reason, for that.
- **Over ranks**: where ranks wait for one that is late, at stake is what *all* the others wait, step by step, as the
  next to come would hold them up then. Of communication that nothing hides it is what the rank has that exposes least:
  the others have it, too, and what they expose more is waiting for that rank. A step that took longer on all ranks
  because one was late is an outlier of that rank alone. What the first step waits longer than any other is not counted:
  ranks begin at different times.
- Findings are not to be added up: the
  same nanosecond may be an idle device for one and a late collective for another, and where a run waits for its data
  and then for its device it may gain by either. But the idle time of devices, as far as rules speak of it, is given to
  one cause only: compiling, an op that the host runs for a device, loading of data, an optimizer that goes
  parameter by parameter, calls that take memory or load code, a wait, the pace of launching, a host that came late for
  another reason, or a queue.
- **Waits** let the host lose its lead, and what it launches then comes late until it is ahead again. Had it not waited,
  it would be ahead by as long as it waited, and no more: so much of the idle time that follows a wait is the wait's.
  What a call does while no device is at work is its own, and no wait.
- **Steps** are those of `opspan steps`. What happened outside of them is not looked at; a run without steps is looked
  at from its first work of a device on. What a step took that is an outlier is a finding of its own, one for each thing
  that grew most in some of them, and no other rule counts it, but that of compiling and that of kernels that get
  slower; and loads, waits and copies in it count where usual steps have the same. Idle time that begins in one step and
  ends in another, or after the last, is cut there: each part is its step's.
- **A share** of the steps' time is one of the time of all steps, each until all that it launched was done; one of the
  run, where there are no steps, of the time from the first work of a device on. Other shares say of what they are.
- **Severity** goes by that share of the time at stake: {severities}. A finding of severity *info*
  has no time at stake: nothing says how much sooner the run would have ended, or the file cannot answer something, and
  the finding says how to record what is missing.
- **Confidence** is that of the cause: *certain* if the trace says it, *likely* if the figures fit and little else does,
  *possible* if it is one of several causes.
- The figures that a finding rests on are in its `figures`, and the time ranges that show it in its `ranges`.

"""
JUDGED = """\
## How good they are

Measured by `python tools/judge --seeds {seeds}` of commit {commit} ({day}) on {plants} runs with a fault that was
planted and {clean_runs} without one: training, inference and pipelines of 1 to 8 ranks. The runs are simulated, so what
a fault costs is known: the same run is simulated without it. Seeds that were not looked at while rules were written
tell most.

{measures}
- **Named**: the cause is among the first three findings with time at stake, where it costs at least 3% of the run.
- **Time at stake** is within 15% of what the run without the fault saves, or within 1% of the run. Products that do not
  use tensor cores, and those of odd sizes, are compared with the run in which they take half of their time, for that is
  what these findings state.
- **Place**: op, module, function, step or rank that was planted are named.
- **What-if**: `opspan path --what-if` says within 3 points how the time of the steps changes.
- **False**: findings with time at stake on runs without a fault, whose cause would save less than half of what they
  state if it were taken out of the run.

{missed}

"""
OF_PROGRAMS = """\
### Real programs

Measured by `python tools/judge --only programs --seeds {seeds}` of commit {commit} ({day}) on {plants} runs with a
fault that was planted: real programs on a CPU, of 1 to 4 ranks, that opspan itself recorded. Each ran five times with
the fault and five times without it, and what it costs is how far the medians are apart; the run of the median is the
one that is looked at. Where it can be, what was planted is done without the fault as well, and its time left out: a
pause leaves the processor's caches and clocks slower, which no trace says. Memory that is freed stays with the program.

{measures}
{missed}

"""
DATA = Path(__file__).parents[2] / "docs" / "judge.json"
_MISSED = "| planted | runs | not named | time is off | place is missing |\n| --- | --- | --- | --- | --- |"
MEASURES = {"recall": "Named", "time at stake": "Time at stake", "place": "Place", "what-if": "What-if"}


def text() -> str:
    severities = ", ".join(
        f"*{name}* from {least:.0%} on" if least else f"*{name}* below" for least, name in SEVERITIES
    )
    head = HEAD.replace("{severities}", severities)
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return f"{head}{measurements(data)}## The rules\n{''.join(map(_section, RULES))}"


def measurements(parts: dict[str, dict[str, Any]]) -> str:
    """Returns the tables of measurements: one of simulated runs, and one of real programs. A table without data is left
    out."""
    texts = {"simulated": JUDGED, "programs": OF_PROGRAMS}
    return "".join(_part(words, parts[name]) for name, words in texts.items() if name in parts)


def _part(words: str, data: dict[str, Any]) -> str:
    measures = [
        f"| {MEASURES[name]} | {right} of {of} ({right / of if of else 0:.0%}) | {goal:.0%} |\n"
        for name, (right, of, goal) in data["measures"].items()
    ]
    if "clean_runs" in data:
        measures.append(f"| False | {data['false_findings']} in {data['clean_runs']} runs | 0 |\n")
    missed = [f"| {' | '.join(map(str, (kind, *counts)))} |" for kind, counts in data["missed"].items()]
    tables = {
        "measures": "| measure | | goal |\n| --- | --- | --- |\n" + "".join(measures),
        "missed": "\n".join((_MISSED, *missed)),
    }
    return words.format_map(data | tables)


def _section(rule: Rule) -> str:
    return f"""
### {rule.id}: {rule.title}

- **Looks at** {rule.looks_at}.
- **Speaks from** {_number(rule.threshold)} on: {rule.because}.
- **Says** "{name_totals(rule.sentence)}"
- **What to do:** {rule.remedy}.
- **Next:** `{rule.command}`; {_read(rule.read)}
"""


def _number(threshold: float) -> str:
    return f"{threshold:g}" if threshold >= 1 else f"{threshold:.0%}"


def _read(read: str) -> str:
    return f"[read on]({read.removeprefix('docs/')})"
