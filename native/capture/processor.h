// Describes the machine's processor for the header of a file: its model, how much of it the process may use, and how
// fast `opspan doctor --measure-peaks` found it. docs/formats/capture.md lists the entries.
#pragma once

#include <string>
#include <string_view>

namespace opspan::capture {

// Returns entries NAME=value, each ended by NUL, of what is known. `root` is put before the paths of /proc and /sys;
// with a root, the processor's own instruction is not asked, so that a test can show any machine.
std::string describe_processor(const std::string& root = "");

// Returns these entries, and one with the figures that were measured for this processor, if there are any. `variables`
// is the environment, which says where opspan keeps the figures.
std::string processor_with_peaks(std::string_view variables);

// Copies the entries behind those for the rank. If there is no room for all, the last ones are left out.
void copy_processor(std::string_view entries, char* out, size_t size);

}  // namespace opspan::capture
