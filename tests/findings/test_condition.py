"""Time at stake on a condition that no trace can show: every output names the condition."""

from __future__ import annotations

from findings.made import Made
from opspan.findings import RULES
from opspan.questions import Options, question
from opspan.text_columns import Layout
from opspan.views.answer import as_text
from opspan.views.page.overview_findings import findings as of_page
from opspan.views.page.section import Subject

HALF = "if they took half of their time"


def made() -> Made:
    """A run with a product in float32 that takes 980 of each step, and that the host waits for."""
    one = Made().device(capability="8.0").range("aten::mm", 0, 12, input_types='["float", "float"]')
    return one.launch(1, "ampere_sgemm_128x64_nn", 20, 980).call("cudaStreamSynchronize", 13, 987)


def test_every_output_names_the_condition() -> None:
    found = made().analysed()
    row = next(row for row in question("findings").rows_of(found, Options()).to_dicts() if row["id"] == "tf32-off")
    assert (row["condition"], row["at_stake_ns"]) == (HALF, 4900)

    text = as_text(question("findings").answer_of(found, Options()), layout=Layout(width=200))
    assert f"4.900us at stake {HALF} (49.0% of the steps' time)" in text
    assert f"4.900us {HALF}" in question("findings").rows_of(found, Options())._repr_html_()
    assert any(
        "tf32-off 49.0% of the steps' time if they took half" in line
        for line in question("summary").answer_of(found, Options()).notes
    )
    shown = next(one for one in of_page(Subject(found))["rows"] if one["id"] == "tf32-off")
    assert shown["condition"] == HALF


def test_where_there_is_none_nothing_is_said() -> None:
    found = Made().launch(900, "gemm", 910, 90).range("gloo:all_reduce", 100, 700, kind="user").analysed()
    row = question("findings").rows_of(found, Options()).to_dicts()[0]
    assert row["condition"] is None
    text = as_text(question("findings").answer_of(found, Options()), layout=Layout(width=200))
    assert " at stake (" in text


def test_a_condition_is_part_of_a_sentence() -> None:
    conditions = [rule.condition for rule in RULES if rule.condition]
    assert len(conditions) > 3
    assert all(one.startswith("if ") and not one.endswith(".") for one in conditions)
