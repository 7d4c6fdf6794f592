"""What is wrong with a run, how much time that costs, and what to do: rules as data over the analyses.

    findings(found) -> the findings of a run, the one with most time at stake first; those of no time last

A rule is a line of data with a function that looks for it, in a file of its subject in rules/. Nothing is said without
evidence: the figures that a finding rests on are part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from opspan.analysis import Analysis
from opspan.findings.rule import Evidence, Finding, Rule
from opspan.findings.rules import RULES
from opspan.findings.run import Run

_AT_ONCE = 2  # rules: much of each is work for one processor

__all__ = ["RULES", "Evidence", "Finding", "Rule", "Run", "findings", "looked_for"]


def findings(analysis: Analysis) -> list[Finding]:
    return looked_for(Run(analysis), RULES)


def looked_for(run: Run, rules: Iterable[Rule]) -> list[Finding]:
    if run.total_ns <= 0:
        return []
    rules = tuple(rules)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda rule: rule.evidence(run), rules))
    said = []
    for rule, evidences in zip(rules, found, strict=True):
        for evidence in evidences:
            ns = evidence.at_stake_ns
            if ns is not None:  # what several threads did at once may take longer than the run; it can save no more
                ns = min(max(ns, 0), run.total_ns)
                evidence = replace(evidence, at_stake_ns=ns)
            said.append(Finding(rule, evidence, None if ns is None else run.share(ns), run.whole))
    return sorted(said, key=lambda finding: -(finding.evidence.at_stake_ns or 0))
