// Found where torch has no fmt, which headers of Kineto that it brings ask for even so. Functions of theirs call this;
// none of those is called here.
#pragma once

#include <string>

namespace fmt {

template <class... Values>
std::string format(const char* form, const Values&... values);

}  // namespace fmt
