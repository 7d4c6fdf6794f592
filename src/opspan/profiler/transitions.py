"""What a profiler does when one step's action is followed by another's: torch.profiler's table, as data."""

from __future__ import annotations

from opspan.emit.schedule import ProfilerAction

NONE, WARMUP = ProfilerAction.NONE, ProfilerAction.WARMUP
RECORD, SAVE = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE

# Names of methods.
PREPARE, START, STOP, READY = "prepare_trace", "start_trace", "stop_trace", "_trace_ready"

# (the action of the last step, that of the next one; None: the profiler is stopped) -> what is done in between
TRANSITIONS: dict[tuple[ProfilerAction, ProfilerAction | None], tuple[str, ...]] = {
    (NONE, WARMUP): (PREPARE,),
    (NONE, RECORD): (PREPARE, START),
    (NONE, SAVE): (PREPARE, START),
    (WARMUP, NONE): (START, STOP),
    (WARMUP, RECORD): (START,),
    (WARMUP, SAVE): (START,),
    (WARMUP, None): (START, STOP),
    (RECORD, NONE): (STOP,),
    (RECORD, WARMUP): (STOP,),
    (RECORD, None): (STOP, READY),
    (SAVE, NONE): (STOP, READY),
    (SAVE, WARMUP): (STOP, READY, PREPARE),
    (SAVE, RECORD): (STOP, READY, PREPARE, START),
    (SAVE, SAVE): (STOP, READY, PREPARE, START),
    (SAVE, None): (STOP, READY),
}
# Schedules that throw away what they warmed up for, or recorded: torch warns of them.
INCORRECT = {(WARMUP, NONE), (RECORD, NONE), (RECORD, WARMUP)}


def action_of(answer: object) -> ProfilerAction:
    """What a schedule answered, which may be torch's own enum. DEVICE_STOPPED is no schedule's to answer."""
    name = getattr(answer, "name", None)
    if name == ProfilerAction.DEVICE_STOPPED.name:
        raise ValueError("a schedule answered DEVICE_STOPPED, which only the profiler itself may set")
    if name not in ProfilerAction.__members__:
        raise ValueError(f"a schedule answered {answer!r}; expected a ProfilerAction")
    return ProfilerAction[str(name)]
