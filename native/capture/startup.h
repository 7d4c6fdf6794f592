// Reads facts about the start of a process, for the header of its file. Each fact is a text, ended by NUL. `out` must
// be all zeros.
#pragma once

#include <cstddef>

namespace opspan::capture {

void read_command_line(char* out, size_t size);
// Reads only the variables that tell which rank of a job the process is.
void read_environment(char* out, size_t size);

}  // namespace opspan::capture
