// Memory that is a piece of a capture file, guarded: to touch what somebody has cut off the file (`> FILE`, a rotation
// of logs that copies and truncates) is SIGBUS, and would be the end of the user's program.
//
// Mapping is what makes a capture outlive `kill -9` at 7 ns a unit; a pwrite of each would cost some hundred. So the
// mapping stays, and a handler of SIGBUS puts empty memory in the place of what is gone: the writes go nowhere, the
// program goes on. It costs nothing until then. A SIGBUS that is none of ours goes on to who was there before; a
// handler that the program sets after us comes before ours, and then a cut file is its business.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opspan::capture {

// As mmap of a file for reading and writing, shared. MAP_FAILED, and errno.
void* map_guarded(int fd, uint64_t offset, size_t bytes);
void unmap_guarded(void* base, size_t bytes);
// Puts empty memory in its place, in one step: who writes there meanwhile writes to nobody. It is unmapped as before.
void let_go_of_file(void* base, size_t bytes);

}  // namespace opspan::capture
