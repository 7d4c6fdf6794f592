// What a process was started with, for the header of its file: texts, each ended by NUL. `out` is all zeros.
#pragma once

#include <cstddef>

namespace opspan::capture {

void read_command_line(char* out, size_t size);
// Only what says which rank of a job the process is.
void read_environment(char* out, size_t size);

}  // namespace opspan::capture
