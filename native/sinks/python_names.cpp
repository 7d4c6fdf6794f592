#include "sinks/python_names.h"

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/hash.h"

namespace opspan::python {
namespace {

// A nn.Module. Its name has a number that no other module of its class has.
struct Module {
  Object* weak_reference;  // tells whether the module still lives: a later one may have its address
  capture::Constant* name;
};

struct Names {
  std::unordered_map<const Object*, Function> functions;  // by code object; a reference to each is held
  std::unordered_map<const Object*, Module> modules;
  std::unordered_map<std::string, size_t> modules_of_class;
  std::unordered_map<std::string, capture::Constant> texts;
};
Names& names() {
  static Names* names = new Names;  // never freed: other threads may run Python while the process exits
  return *names;
}

struct RecentFunction {
  const Object* code;
  Function* function;
};
std::array<RecentFunction, 1024> g_functions;

struct RecentCFunction {
  std::string name, type;
  capture::Constant* text = nullptr;
};
std::array<RecentCFunction, 512> g_c_functions;

std::vector<std::string> g_folders;  // the folders of opspan's own functions
std::string g_library;               // the folder of Python's standard library
const Object* g_module_code = nullptr;
std::array<const Object*, 2> g_edge_codes{};  // the code objects of record_function's __enter__ and __exit__

size_t slot_of(const void* first, const void* second, size_t count) {
  return capture::fold(reinterpret_cast<uintptr_t>(first) ^ capture::kOdd, reinterpret_cast<uintptr_t>(second)) % count;
}

std::string text_of(const Reference& object) {
  long size = 0;
  const char* text = object ? PyUnicode_AsUTF8AndSize(object.get(), &size) : nullptr;
  if (!text) {
    PyErr_Clear();  // Python cannot write the text, a path, as UTF-8
    return "?";
  }
  std::string copy(text, static_cast<size_t>(size));
  for (char& letter : copy) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = ' ';
  }
  return copy;
}

std::string text_of(Object* object, const char* attribute) {
  return text_of(Reference(PyObject_GetAttrString(object, attribute)));
}

long line_of(Object* code) {
  Reference line(PyObject_GetAttrString(code, "co_firstlineno"));
  const long number = line ? PyLong_AsLong(line.get()) : 0;
  PyErr_Clear();
  return number;
}

bool is_in(const std::string& folder, const std::string& file) { return !file.compare(0, folder.size(), folder); }

Function::Kind kind_of(const Object* code, const std::string& file) {
  if (code == g_module_code) return Function::kModuleCall;
  if (code == g_edge_codes[0] || code == g_edge_codes[1]) return Function::kRangeEdge;
  for (const std::string& folder : g_folders) {
    if (is_in(folder, file)) return Function::kOurs;
  }
  const bool is_of_library =
      is_in("<frozen ", file) ||
      (is_in(g_library, file) && file.find("/site-packages/", g_library.size() - 1) == std::string::npos);
  return is_of_library ? Function::kOfLibrary : Function::kUsual;
}

[[gnu::cold, gnu::noinline]] Function& add_function(Object* code) {
  std::string file = text_of(code, "co_filename");
  std::string name = file + "(" + std::to_string(line_of(code)) + "): " + text_of(code, "co_name");
  Py_IncRef(code);
  return names().functions.try_emplace(code, std::move(name), kind_of(code, file)).first->second;
}

capture::Constant& text(std::string text) {
  auto [at, is_new] = names().texts.try_emplace(text, text);
  return at->second;
}

// Returns `self` of the method that the frame runs.
Reference self_of(Frame* frame) {
  Reference locals(PyObject_GetAttrString(reinterpret_cast<Object*>(frame), "f_locals"));
  Reference self(locals ? PyMapping_GetItemString(locals.get(), "self") : nullptr);
  if (!self) PyErr_Clear();
  return self;
}

}  // namespace

void describe_program(const opspan_python& python) {
  g_folders.assign(python.folders, python.folders + python.folder_count);
  g_library = python.library;
  g_module_code = static_cast<const Object*>(python.module_code);
  g_edge_codes = {static_cast<const Object*>(python.enter_code), static_cast<const Object*>(python.exit_code)};
}

Function& function_of(Frame* frame) {
  const Reference code(PyFrame_GetCode(frame));
  RecentFunction& recent = g_functions[slot_of(code.get(), nullptr, g_functions.size())];
  if (recent.code == code.get()) [[likely]]
    return *recent.function;
  auto found = names().functions.find(code.get());
  Function& function = found == names().functions.end() ? add_function(code.get()) : found->second;
  recent = {code.get(), &function};
  return function;
}

capture::Constant* module_name(Frame* frame) {
  const Reference self = self_of(frame);
  if (!self) return nullptr;
  auto known = names().modules.find(self.get());
  if (known != names().modules.end()) {
    if (PyWeakref_GetObject(known->second.weak_reference) == self.get()) return known->second.name;
    Py_DecRef(known->second.weak_reference);
    names().modules.erase(known);
  }
  const Reference type(PyObject_GetAttrString(self.get(), "__class__"));
  const std::string name = type ? text_of(type.get(), "__name__") : "?";
  Object* reference = PyWeakref_NewRef(self.get(), nullptr);
  if (!reference) {
    PyErr_Clear();  // a class with __slots__ may not allow weak references
    return nullptr;
  }
  const size_t number = names().modules_of_class[name]++;
  capture::Constant& constant = text("nn.Module: " + name + "_" + std::to_string(number));
  names().modules.emplace(self.get(), Module{reference, &constant});
  return &constant;
}

capture::Constant& name_of_c_function(const Object* c_function) {
  const auto* definition = reinterpret_cast<const CFunctionHead*>(c_function)->definition;
  const Object* self = PyCFunction_GetSelf(const_cast<Object*>(c_function));
  const char* type = self ? type_of(self)->name : "module";
  RecentCFunction& recent = g_c_functions[slot_of(definition, type, g_c_functions.size())];
  // Compares texts, not addresses, because the memory of a deleted function may be used again.
  if (recent.text && recent.name == definition->name && recent.type == type) [[likely]]
    return *recent.text;
  recent.name = definition->name;
  recent.type = type;
  // For a plain function of pybind11, `self` is an object of pybind11.
  const bool is_function = recent.type == "module" || recent.type == "PyCapsule" || is_in("pybind11_", recent.type);
  recent.text = &text(is_function ? "<built-in function " + recent.name + ">"
                                  : "<built-in method " + recent.name + " of " + recent.type + " object>");
  return *recent.text;
}

void forget_names() {
  Names old;
  std::swap(old, names());
  g_functions = {};
  for (RecentCFunction& recent : g_c_functions) recent.text = nullptr;
  for (auto& [code, function] : old.functions) Py_DecRef(const_cast<Object*>(code));
  for (auto& [object, module] : old.modules) Py_DecRef(module.weak_reference);
}

}  // namespace opspan::python
