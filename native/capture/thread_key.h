#pragma once

#include <pthread.h>

namespace opspan::capture {

// Makes a pthread key. If the process has no more keys, returns an invalid key, whose values are never freed.
inline pthread_key_t make_key(void (*at_exit)(void*)) {
  pthread_key_t key;
  return pthread_key_create(&key, at_exit) == 0 ? key : ~pthread_key_t{0};
}

}  // namespace opspan::capture
