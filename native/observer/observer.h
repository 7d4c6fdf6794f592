// The observer's C interface: torch on one side, sinks.h on the other. Python opens it with ctypes and passes it the
// sinks' tables, because the two libraries are not linked to each other. (In an installation, sinks.h is in the same
// folder as this file; in the source tree compile with -I native/sinks.)
#ifndef OPSPAN_OBSERVER_H
#define OPSPAN_OBSERVER_H

#include "sinks.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPSPAN_OBSERVER_ABI 9

OPSPAN_EXPORT int opspan_observer_abi(void);
// Returns what an observer that comes with the wheel was built for, as tools/observers wrote it: the version of torch,
// its git version and the C++ ABI (cxx11 or pre). Returns "" for an observer that was built where it runs.
OPSPAN_EXPORT const char* opspan_observer_built_for(void);
// Returns 1 if the torch that is loaded is laid out as this observer was compiled for, else 0.
OPSPAN_EXPORT int opspan_observer_fits(void);
// Takes what opspan_sink_of returns for each sink. Call it once, before anything else. Returns 0, or -errno.
OPSPAN_EXPORT int opspan_observer_init(const opspan_sink* const sinks[OPSPAN_SINK_COUNT]);
// Sends every op of every thread to this sink from now on, with the inputs that an OPSPAN_INPUTS_... value selects.
// Returns 0, or -errno (EBUSY: attached already).
OPSPAN_EXPORT int opspan_observer_attach(int sink, int inputs);
// Sends to this sink, with each op, the Python functions that the op is called in, as `frames` reads them. Stops that
// if `frames` is null. Returns 0, or -errno.
OPSPAN_EXPORT int opspan_observer_stacks(int sink, const opspan_frames* frames);
// Sets whether names of ops of this sink have their overload, as in aten::add.Tensor (1), or not (0). Returns 0, or
// -errno.
OPSPAN_EXPORT int opspan_observer_overloads(int sink, int on);
// Detaches the sink. Ranges that have begun still end there, so this library must stay loaded.
OPSPAN_EXPORT void opspan_observer_detach(int sink);
// Starts (1) or stops (0) sending to this sink what memory of the host torch allocates and frees. Returns 0, or -errno
// (ENOTSUP, EPERM: this allocator cannot be watched).
OPSPAN_EXPORT int opspan_observer_memory(int sink, int on);
// Starts (1) or stops (0) telling Kineto of every thread that runs an op. Torch uses Kineto to collect events of
// devices.
OPSPAN_EXPORT void opspan_observer_threads(int on);
// Calls a Python callable, the __enter__ of a _RecordFunctionFast, so that it begins its range even if torch's own
// profiler is off. Returns the result, a new reference; null if an exception was raised. The caller holds the GIL.
OPSPAN_EXPORT void* opspan_observer_enter_fast(void* callable);
// Calls a Python callable in the same way. Ranges of USER_SCOPE that begin during this call do not reach the sinks. The
// sinks get only the ids of these ranges (opspan_sink::announce).
OPSPAN_EXPORT void* opspan_observer_enter_silent(void* callable);
// Returns 1 if anybody but opspan gets ranges of USER_SCOPE that begin on this thread, else 0.
OPSPAN_EXPORT int opspan_observer_others(void);
// Sets callbacks that do nothing, as the lower bound of benchmarks: 1 sets them, 2 sets them and asks torch for the
// inputs, and 0 removes them.
OPSPAN_EXPORT int opspan_observer_empty(int on);

#ifdef __cplusplus
}
#endif
#endif
