// Describes the processor, for `opspan doctor --measure-peaks`, which measures how fast it is. Python calls this with
// ctypes (src/opspan/emit/sinks.py).
#pragma once

#include "sinks/sinks.h"

extern "C" {

// Writes what a capture says about the processor: entries NAME=value, each ended by NUL. Returns the size of all
// entries; at most `size` bytes are written. `root` is the folder that has /proc and /sys; "": those of the system.
OPSPAN_EXPORT size_t opspan_processor(const char* root, char* out, size_t size);

}  // extern "C"
