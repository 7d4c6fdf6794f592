// Prints a line on standard error. The line may contain names that others chose, so every byte other than plain ASCII
// is printed as an escape. Otherwise a name could control the terminal.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>

namespace opspan::capture {

inline void say(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string line = "opspan: ";
  for (unsigned char byte : text) {
    if (byte >= 0x20 && byte < 0x7f) {
      line += static_cast<char>(byte);
    } else {
      line += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  line += '\n';
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace opspan::capture
