// Parts of a line of the text of `perf script`: the header of a sample, and a frame of its stack.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace opspan::columns::perf_text {

struct Header {
  std::string_view comm, event;
  std::string_view rest;  // what follows the event: the frame of a sample in one line, or fields of a tracepoint
  std::optional<int64_t> pid, tid, cpu, time_ns, period;
};

struct Frame {
  std::string_view function, library;
};

std::string_view without_spaces(std::string_view text);
// Both return whether the line is one.
bool read_header(std::string_view line, Header& header);
bool read_frame(std::string_view line, Frame& frame);

}  // namespace opspan::columns::perf_text
