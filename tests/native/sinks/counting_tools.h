// Tools inside the program: an NVTX injection linked statically, and ITT calls put where the client looks for them.
// They count, and abort when a thread closes what it has not opened.
#pragma once

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "sinks/itt_calls.h"

#define CHECK(what)                                              \
  do {                                                           \
    if (!(what)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
      abort();                                                   \
    }                                                            \
  } while (0)

namespace {

thread_local int t_nvtx_depth = 0;
thread_local int t_itt_depth = 0;
std::atomic<uint64_t> g_nvtx_pushed{0}, g_itt_begun{0}, g_async{0};
int g_something;

int nvtx_push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  const void* message = event->message.ascii;
  CHECK(message);
  ++g_nvtx_pushed;
  return t_nvtx_depth++;
}
int nvtx_pop(nvtxDomainHandle_t) {
  CHECK(t_nvtx_depth > 0);
  return --t_nvtx_depth;
}
nvtxDomainHandle_t nvtx_domain(const char*) { return reinterpret_cast<nvtxDomainHandle_t>(&g_something); }
nvtxStringHandle_t nvtx_string(nvtxDomainHandle_t, const char*) {
  return reinterpret_cast<nvtxStringHandle_t>(&g_something);
}
nvtxRangeId_t nvtx_start(nvtxDomainHandle_t, const nvtxEventAttributes_t*) { return ++g_async; }
void nvtx_mark(nvtxDomainHandle_t, const nvtxEventAttributes_t*) {}
int nvtx_push_text(const char* text) {
  CHECK(text);
  ++g_nvtx_pushed;
  return t_nvtx_depth++;
}
int nvtx_pop_text() { return nvtx_pop(nullptr); }

template <class Function>
void set(NvtxFunctionTable table, unsigned id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int attach(NvtxGetExportTableFunc_t get_table) {
  auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr, core2 = nullptr;
  unsigned size = 0;
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size);
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size);
  set(core, NVTX_CBID_CORE_RangePushA, nvtx_push_text);
  set(core, NVTX_CBID_CORE_RangePop, nvtx_pop_text);
  set(core2, NVTX_CBID_CORE2_DomainCreateA, nvtx_domain);
  set(core2, NVTX_CBID_CORE2_DomainRegisterStringA, nvtx_string);
  set(core2, NVTX_CBID_CORE2_DomainRangePushEx, nvtx_push);
  set(core2, NVTX_CBID_CORE2_DomainRangePop, nvtx_pop);
  set(core2, NVTX_CBID_CORE2_DomainRangeStartEx, nvtx_start);
  set(core2, NVTX_CBID_CORE2_DomainMarkEx, nvtx_mark);
  return 1;
}

opspan::itt::Domain* itt_domain(const char* name) {
  static opspan::itt::Domain domain{1, "opspan", nullptr, 0, nullptr, nullptr};
  static opspan::itt::Domain torch{1, "PyTorch", nullptr, 0, nullptr, nullptr};
  return strcmp(name, "opspan") ? &torch : &domain;
}
opspan::itt::StringHandle* itt_string(const char*) {
  return reinterpret_cast<opspan::itt::StringHandle*>(&g_something);
}
void itt_begin(const opspan::itt::Domain*, opspan::itt::Id, opspan::itt::Id, opspan::itt::StringHandle* name) {
  CHECK(name);
  ++g_itt_begun;
  ++t_itt_depth;
}
void itt_end(const opspan::itt::Domain*) {
  CHECK(t_itt_depth > 0);
  --t_itt_depth;
}

void attach_itt() {
  auto& calls = opspan::itt::g_calls;
  calls.domain_create = itt_domain;
  calls.string_handle_create = itt_string;
  calls.task_begin = itt_begin;
  calls.task_end = itt_end;
}

}  // namespace

// Linked statically: NVTX takes this in place of a library.
extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;
}
