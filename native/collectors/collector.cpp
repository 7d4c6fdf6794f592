#include "collectors/collector.h"

#include <stdlib.h>

#include <unordered_map>

#include "capture/say.h"

namespace opspan::collectors {
namespace {

bool start() {
  const char* folder = getenv("OPSPAN_CAPTURE_DIR");
  if (!folder || !*folder) return false;
  std::string path;
  std::string error;
  if (!capture::start(folder, capture::Producer::kCollectors, &path, &error)) {
    capture::say(error + " (OPSPAN_CAPTURE_DIR): nothing is recorded, the program goes on");
    return false;
  }
  // These handlers are registered after the writer's own, so that a fork locks the registry before it locks the writer.
  pthread_atfork([] { registry().lock(); }, [] { registry().unlock(); }, [] { registry().unlock(); });
  return true;
}

}  // namespace

bool is_collecting() {
  static const bool on = start();
  return on;
}

std::mutex& registry() {
  static std::mutex* instance = new std::mutex;
  return *instance;
}

capture::Constant* constant_locked(std::string_view text) {
  static auto* all = new std::unordered_map<std::string_view, capture::Constant*>;
  static auto* too_many = new capture::Constant("(too many distinct texts)");
  if (auto known = all->find(text); known != all->end()) return known->second;
  capture::Constant* constant = g_constants.add(std::string(text));
  if (!constant) return too_many;
  all->emplace(constant->text(), constant);
  return constant;
}

capture::Constant* constant(std::string_view text) {
  std::lock_guard lock(registry());
  return constant_locked(text);
}

std::string to_utf8(const wchar_t* text) {
  std::string out;
  for (; text && *text; ++text) {
    auto c = static_cast<uint32_t>(*text);
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;  // not a Unicode character
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out += static_cast<char>((0xff00 >> (more + 1) & 0xff) | c >> 6 * more);
    while (more--) out += static_cast<char>(0x80 | (c >> 6 * more & 0x3f));
  }
  return out;
}

}  // namespace opspan::collectors
