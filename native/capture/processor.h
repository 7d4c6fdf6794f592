// Describes the machine's processor for the header of a file: its model, how much of it the process may use, and how
// fast `opspan doctor --measure-peaks` found it. docs/formats/capture.md lists the entries.
#pragma once

#include <string>
#include <string_view>

namespace opspan::capture {

// Returns entries NAME=value, each ended by NUL, of what is known. `root` is put before the paths of /proc and /sys;
// with a root, the processor's own instruction is not asked, so that a test can show any machine.
std::string describe_processor(const std::string& root = "");

// Returns the entry with the figures that were measured for this processor, or "". `processor` is the result of
// describe_processor, and `variables` the environment, which says where opspan keeps the figures.
std::string measured_peaks(std::string_view processor, std::string_view variables);

}  // namespace opspan::capture
