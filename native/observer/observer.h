// The observer's C interface: torch on one side, sinks.h on the other. Python opens it with ctypes and hands it the
// sinks' tables: the two libraries do not know each other. (Once installed, sinks.h lies beside this file; in the
// source tree compile with -I native/sinks.)
#ifndef OPSPAN_OBSERVER_H
#define OPSPAN_OBSERVER_H

#include "sinks.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPSPAN_OBSERVER_ABI 6

OPSPAN_EXPORT int opspan_observer_abi(void);
// Takes what opspan_sink_of returns for each sink. Call it once, before anything else. Returns 0, or -errno.
OPSPAN_EXPORT int opspan_observer_init(const opspan_sink* const sinks[OPSPAN_SINK_COUNT]);
// Sends every op of every thread to this sink from now on, with the inputs that an OPSPAN_INPUTS_... names. Returns 0,
// or -errno (EBUSY: attached already).
OPSPAN_EXPORT int opspan_observer_attach(int sink, int inputs);
// Adds to ops of this sink the Python functions that they are called in (1), or not (0). Returns 0, or -ENOTSUP.
OPSPAN_EXPORT int opspan_observer_stacks(int sink, int on);
// Adds to names of ops of this sink their overload (1), as in aten::add.Tensor, or not (0). Returns 0, or -errno.
OPSPAN_EXPORT int opspan_observer_overloads(int sink, int on);
// Detaches the sink. Ranges that have begun still end there, so this library must stay loaded.
OPSPAN_EXPORT void opspan_observer_detach(int sink);
// Tells this sink which memory of the host torch allocates and frees (1), or no longer (0). Returns 0, or -errno
// (ENOTSUP, EPERM: this allocator cannot be watched).
OPSPAN_EXPORT int opspan_observer_memory(int sink, int on);
// Tells Kineto, with which torch collects on devices, of every thread that runs an op (1), or no longer (0).
OPSPAN_EXPORT void opspan_observer_threads(int on);
// Sets a pair of callbacks that do nothing, the lower bound of benchmarks: 1 on, 2 on and asking torch for the inputs,
// 0 off.
OPSPAN_EXPORT int opspan_observer_empty(int on);

#ifdef __cplusplus
}
#endif
#endif
