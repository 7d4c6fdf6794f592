// Maps parts of a capture file and guards them. If somebody cuts the file (`> FILE`, or a rotation of logs that copies
// and truncates), a write to the lost part raises SIGBUS, which would end the user's program.
//
// A mapped file survives `kill -9` and costs 7 ns for each unit; a pwrite for each unit would cost some hundred ns. So
// the file stays mapped, and a SIGBUS handler maps empty memory over the lost part. The program goes on, and only what
// it writes to that part is lost. The handler costs nothing until a file is cut. Any other SIGBUS goes to the handler
// that was installed before ours. A handler that the program installs later runs instead of ours, and has to deal with
// cut files itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opspan::capture {

// Maps a part of a file for reading and writing, with MAP_SHARED. Returns MAP_FAILED and sets errno if that fails.
void* map_guarded(int fd, uint64_t offset, size_t bytes);
void unmap_guarded(void* base, size_t bytes);
// Replaces a mapped part with empty memory, in one step: threads that still write there no longer change the file.
// unmap_guarded() must still be called for the part later.
void detach_from_file(void* base, size_t bytes);

}  // namespace opspan::capture
