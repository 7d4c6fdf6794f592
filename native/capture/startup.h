// Reads facts about the start of a process, for the header of its file. Each fact is a text, ended by NUL. `out` must
// be all zeros.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace opspan::capture {

// Returns at most `most` bytes of what can still be read from the descriptor.
std::string read_some(int fd, size_t most);
// Returns at most `most` bytes from the start of a file; "" if it cannot be read.
std::string read_start(const std::string& path, size_t most);

void read_command_line(char* out, size_t size);
// Returns the environment as it was at the start of the process, because getenv is not safe while another thread of the
// program calls setenv.
std::string environment_at_start();
// Copies only the variables that tell which rank of a job the process is. Returns the number of bytes that are used.
size_t copy_rank(std::string_view variables, char* out, size_t size);

}  // namespace opspan::capture
