"""Finds the problems of a run, and for each problem the time that it costs and the remedy.

    findings(analysis) -> the findings of a run, sorted by the time at stake, the longest first. Findings without a
        time come last

A rule is a record with a function that looks for a problem; rules/ has a file for each subject. Each finding has
evidence: the figures that support the finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from opspan.analysis import Analysis
from opspan.findings.rule import Evidence, Finding, Rule
from opspan.findings.rules import RULES
from opspan.findings.run import Run

_AT_ONCE = 2  # the number of rules that run in parallel; a rule mostly uses only one processor

__all__ = ["RULES", "Evidence", "Finding", "Rule", "Run", "findings"]


def findings(analysis: Analysis) -> list[Finding]:
    return apply_rules(Run(analysis), RULES)


def apply_rules(run: Run, rules: Iterable[Rule]) -> list[Finding]:
    rules = tuple(rule for rule in rules if run.total_ns > 0 or not rule.needs_time)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = list(pool.map(lambda rule: rule.evidence(run), rules))
    reported = []
    for rule, evidences in zip(rules, results, strict=True):
        for evidence in evidences:
            ns = evidence.at_stake_ns
            if ns is not None:
                ns = min(max(ns, 0), run.total_ns)  # a sum over threads may be longer than the run
                evidence = replace(evidence, at_stake_ns=ns)
            reported.append(Finding(rule, evidence, None if ns is None else run.share(ns), run.total_name))
    return sorted(reported, key=lambda finding: -(finding.evidence.at_stake_ns or 0))
