"""Figures from sums of hardware events. The expected values were computed by hand."""

import polars as pl
import pytest

from opspan.analysis.hardware_events import figures, time_event

VTUNE = {
    "INST_RETIRED.ANY": [6e6, 1e6, 0.0, None],
    "CPU_CLK_UNHALTED.THREAD": [4e6, 4e6, 0.0, 5e6],
    "CPU_CLK_UNHALTED.REF_TSC": [3e6, 3e6, 0.0, 4e6],
    "LONGEST_LAT_CACHE.MISS": [100.0, 0.0, None, 7.0],
    "IDQ_UOPS_NOT_DELIVERED.CORE": [4e6, 8e6, 0.0, 1e6],
    "UOPS_RETIRED.RETIRE_SLOTS": [8e6, 2e6, 0.0, 5e6],
    "BR_MISP_RETIRED.ALL_BRANCHES": [1.0, 2.0, 3.0, 4.0],
}


def of(width: int | None = None, **columns: object) -> dict[str, list[float | None]]:
    return figures(pl.DataFrame(columns), width).to_dict(as_series=False)


def test_figures_of_vtune():
    assert of(**VTUNE) == {
        "instructions": [6e6, 1e6, 0.0, None],
        "cycles": [4e6, 4e6, 0.0, 5e6],
        "ipc": [1.5, 0.25, None, None],
        "llc_misses": [100.0, 0.0, None, 7.0],
    }


@pytest.mark.parametrize(
    ("width", "front_end", "retiring"),
    [(4, [0.25, 0.5, None, 0.05], [0.5, 0.125, None, 0.25]), (5, [0.2, 0.4, None, 0.04], [0.4, 0.1, None, 0.2])],
)
def test_shares_of_slots_need_the_width(width, front_end, retiring):
    shown = of(width, **VTUNE)

    assert shown["front_end_bound"] == front_end
    assert shown["retiring"] == retiring
    assert "retiring" not in of(width, **{"UOPS_RETIRED.RETIRE_SLOTS": [1.0]})  # no cycles


def test_two_hyperthreads_share_the_slots_of_a_core():
    # In 1 of 4 crystal cycles only one hyperthread ran: cycles of cores = 8 / 2 * (1 + 10 / 40) = 5, slots = 20.
    both = {
        "CPU_CLK_UNHALTED.THREAD": [8.0, 8.0, 10.0],
        "CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE": [10.0, 1.0, None],
        "CPU_CLK_UNHALTED.REF_XCLK": [40.0, 0.0, 40.0],
        "UOPS_RETIRED.RETIRE_SLOTS": [15.0, 15.0, 15.0],
    }
    later = {"CPU_CLK_UNHALTED.DISTRIBUTED": [6.0], "CPU_CLK_UNHALTED.THREAD": [9.0], "UOPS_RETIRED.SLOTS": [15.0]}

    assert of(4, **both)["retiring"] == [0.75, None, 0.75]
    assert of(5, **later)["retiring"] == [0.5]


def test_what_is_left_of_the_slots_is_bound_by_the_back_end():
    # Half of the time only one hyperthread ran, so 3/4 of what the hyperthreads counted: 60 cycles, 240 slots. Of these
    # 40 got nothing, 100 were issued, and in 5 cycles (20 slots) the core recovered: 80 of 240 are left.
    known = {
        "CPU_CLK_UNHALTED.THREAD": [80.0, 80.0, 80.0],
        "CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE": [50.0, 50.0, 50.0],
        "CPU_CLK_UNHALTED.REF_XCLK": [100.0, 100.0, 100.0],
        "IDQ_UOPS_NOT_DELIVERED.CORE": [40.0, 40.0, 200.0],
        "UOPS_ISSUED.ANY": [100.0, 100.0, 100.0],
        "INT_MISC.RECOVERY_CYCLES_ANY": [20 / 3, None, 0.0],
    }

    assert of(4, **known)["back_end_bound"] == pytest.approx([80 / 240, 100 / 240, 0.0])
    assert "back_end_bound" not in of(5, **known)
    assert "back_end_bound" not in of(**known)
    for name in known:
        assert "back_end_bound" not in of(4, **{other: known[other] for other in known if other != name})


@pytest.mark.parametrize(
    ("cycles", "instructions", "misses"),
    [
        ("cycles", "instructions", "cache-misses"),
        ("cycles:u", "instructions:u", "cache-misses:u"),
        ("cycles:ppp", "instructions:P", "cache-misses"),
        ("cpu/cycles/u", "cpu/instructions/u", "cpu/cache-misses/u"),
        ("cpu-cycles", "instructions", "cache-misses"),
        ("CPU_CLK_UNHALTED.CORE", "INST_RETIRED.ANY_P", "MEM_LOAD_UOPS_RETIRED.LLC_MISS_PS"),
        ("CPU_CLK_UNHALTED.THREAD_P", "INST_RETIRED.ANY", "MEM_LOAD_RETIRED.L3_MISS"),
    ],
)
def test_names_of_other_tools_and_versions(cycles, instructions, misses):
    shown = of(**{misses: [3], cycles: [10], instructions: [25]})

    assert shown == {"instructions": [25.0], "cycles": [10.0], "ipc": [2.5], "llc_misses": [3.0]}


def test_events_of_different_restrictions_are_not_mixed():
    assert of(**{"cycles": [10.0], "cycles:u": [8.0], "instructions:u": [4.0]}) == {
        "instructions": [4.0],
        "cycles": [8.0],
        "ipc": [0.5],
    }
    assert of(**{"cycles:u": [8.0], "instructions:k": [4.0]}) == {"cycles": [8.0]}
    everything = {"cycles:u": [8.0], "cycles": [10.0], "instructions:u": [4.0], "instructions": [5.0]}
    assert of(**everything)["cycles"] == [10.0]


def test_counts_of_different_events_are_never_added():
    assert of(**{"LONGEST_LAT_CACHE.MISS": [5.0], "MEM_LOAD_RETIRED.L3_MISS": [3.0]}) == {"llc_misses": [5.0]}
    assert of(**{"INST_RETIRED.ANY_P": [5.0], "INST_RETIRED.ANY": [3.0]}) == {"instructions": [3.0]}


def test_other_events_give_no_figure():
    others = {
        "CPU_CLK_UNHALTED.THREAD:cmask=1": [1.0],
        "cpu_core/cycles/": [1.0],
        "LLC-loads": [1.0],
        "cycles;u": [1.0],
    }

    assert of(4, **others) == {}
    assert of(4, Samples=[1.0], **{"": [2.0]}) == {}


@pytest.mark.parametrize(
    ("events", "best"),
    [
        ([None], None),
        ([None, "python"], None),
        (["Samples", "CPU_CLK_UNHALTED.REF_TSC"], "Samples"),
        (["cycles", "cpu-clock:u", "cpu-clock"], "cpu-clock"),
        (["cycles:u", "task-clock"], "task-clock"),
        (["CPU_CLK_UNHALTED.THREAD", "INST_RETIRED.ANY", "CPU_CLK_UNHALTED.REF_TSC"], "CPU_CLK_UNHALTED.REF_TSC"),
        (["INST_RETIRED.ANY", "CPU_CLK_UNHALTED.THREAD"], "CPU_CLK_UNHALTED.THREAD"),
        (["cycles:u", "ref-cycles"], "ref-cycles"),
        (["instructions", "cycles:ppp"], "cycles:ppp"),
        ([None, "cycles"], "cycles"),
        (["instructions", "branch-misses"], None),
        ([], None),
    ],
)
def test_event_that_measures_time(events, best):
    assert time_event(events) == best
    assert time_event(pl.Series(events, dtype=pl.Categorical)) == best
