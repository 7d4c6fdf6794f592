// The observer's C face: torch on one side, sinks.h on the other. Python opens it with ctypes, and hands the sinks'
// tables over: the two libraries do not know each other. (sinks.h lies beside this file once installed; in the source
// tree compile with -I native/sinks.)
#ifndef OPSPAN_OBSERVER_H
#define OPSPAN_OBSERVER_H

#include "sinks.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPSPAN_OBSERVER_ABI 6

OPSPAN_EXPORT int opspan_observer_abi(void);
// What opspan_sink_of gives for each sink. Once, before anything else. 0, or -errno.
OPSPAN_EXPORT int opspan_observer_init(const opspan_sink* const sinks[OPSPAN_SINK_COUNT]);
// From now on every op of every thread goes to this sink, with what OPSPAN_INPUTS_... says of its inputs. 0, or -errno
// (EBUSY: attached already).
OPSPAN_EXPORT int opspan_observer_attach(int sink, int inputs);
// Ops of this sink come with the functions of Python that they are called in (1), or without (0). 0, or -ENOTSUP.
OPSPAN_EXPORT int opspan_observer_stacks(int sink, int on);
// Names of ops of this sink end with their overload (1), as aten::add.Tensor, or do not (0). 0, or -errno.
OPSPAN_EXPORT int opspan_observer_overloads(int sink, int on);
// Ranges that have begun still end at the sink: this library must stay loaded.
OPSPAN_EXPORT void opspan_observer_detach(int sink);
// Memory of the host that torch takes and gives back goes to this sink (1), or no more (0). 0,
// or -errno (ENOTSUP, EPERM: what allocates memory here cannot be watched).
OPSPAN_EXPORT int opspan_observer_memory(int sink, int on);
// Kineto, with which torch collects on devices, hears of every thread that runs an op (1), or no more (0).
OPSPAN_EXPORT void opspan_observer_threads(int on);
// For benchmarks, the floor: a pair of callbacks that do nothing. 1 on, 2 on and asking torch for the inputs, 0 off.
OPSPAN_EXPORT int opspan_observer_empty(int on);

#ifdef __cplusplus
}
#endif
#endif
