#pragma once

#include <pthread.h>

namespace opspan::capture {

// A key of pthread's; where the process has no more of them, one that is none, and whose values are never freed.
inline pthread_key_t make_key(void (*at_exit)(void*)) {
  pthread_key_t made;
  return pthread_key_create(&made, at_exit) == 0 ? made : ~pthread_key_t{0};
}

}  // namespace opspan::capture
