// Replaces fmt if torch is installed without it. Kineto's headers, which come with torch, include fmt in any case. Some
// functions in these headers call the function below, but opspan calls none of them.
#pragma once

#include <string>

namespace fmt {

template <class... Values>
std::string format(const char* form, const Values&... values);

}  // namespace fmt
