"""native.replay in plain loops over numbers that may be as large as they like."""

from __future__ import annotations

import polars as pl

NONE = -1
FOR_WORK, FOR_ROOM = 0, 3
LEAST, MOST = -(2**63), 2**63 - 1


def replay(work: pl.DataFrame, joins: pl.DataFrame, count: int) -> pl.DataFrame:
    rows = work.rows(named=True)
    parts: dict[int, int] = {}
    for row in rows[:count]:
        if row["meeting"] is not None:
            parts[row["meeting"]] = parts.get(row["meeting"], 0) + 1
    there: dict[int, list[int]] = {number: [] for number in parts}
    begun, end = [0] * count, [0] * count
    at, shift = [0] * joins.height, [0] * (joins.height + 1)  # the last is that of NONE: nothing shifted yet

    def run(node: int) -> None:
        row = rows[node]
        launched = shift[row["join"]] + row["launch_ns"]
        after = [] if row["bound"] == NONE else [end[row["bound"]] + row["delay_ns"]]
        if row["bound"] == NONE:
            launched += row["delay_ns"]
        waits = after if row["is_alone"] and after else [launched, *after]
        other = row["other"]
        while other < NONE:
            waits.append(end[rows[-other]["other"]])
            following = rows[-other]["next"]
            other = NONE if following == NONE else -following
        if other != NONE:
            waits.append(end[other])
        begun[node] = max(waits)
        end[node] = begun[node] + row["took_ns"]
        number = row["meeting"]
        if number is not None:
            there[number].append(node)
            if len(there[number]) == parts[number]:
                last = max(begun[part] for part in there[number])
                for part in there[number]:
                    end[part] = last + rows[part]["tail_ns"]

    following = iter(range(count))
    every = joins.rows(named=True)
    for join, between in joins.select("in_order", "work_between").iter_rows():
        for _ in range(between):
            run(next(following))
        row = every[join]
        if row["is_free"]:
            by = LEAST
        elif row["what"] == FOR_WORK:
            by = end[row["work"]]
        elif row["what"] == FOR_ROOM:
            by = begun[row["work"]]
        else:
            by = shift[row["entry"]] + row["target_ns"]
        before = NONE if row["is_first"] else join - 1
        times = [by + row["lag_ns"] if row["binds"] else by]
        if not row["binds"]:
            times.append(shift[before] + row["clock_ns"])
        elif row["has_own"]:
            times.append(shift[row["own_entry"]] + row["own_ns"])
        if before != NONE:
            times.append(at[before])
        at[join] = max(times)
        shift[join] = max(times) - row["clock_ns"]
    for node in following:
        run(node)
    columns = {"begun_ns": begun + at, "end_ns": end + shift[:-1]}
    fitting = {name: [min(max(time, LEAST), MOST) for time in times] for name, times in columns.items()}
    return pl.DataFrame(fitting, schema={"begun_ns": pl.Int64, "end_ns": pl.Int64})
