// Generates traces in the Mooncake format, so that nothing here needs a trace from elsewhere.
//
// Model of each workload (numbers: kChat, kAgent, kRetrieval in generate.cc):
// - chat: conversations in which every turn sends the whole history again. 39 % of requests continue
//   an earlier one (the Mooncake conversation trace's share). A conversation that continued before
//   is likelier to continue (29 % after the first turn, 43, 56, 65 % after later ones), because people
//   differ in how long they stay. Gaps between turns are log-normal, median 123 s, quartiles
//   66 and 264 s. Prompts begin with one system prompt that all share; first prompts are
//   log-normal around 6,900 tokens, turns add some 470.
// - agent: loops of tool calls: 16 agents (Zipf), each with a system prompt and tool descriptions
//   of 2,000 to 10,000 tokens that its sessions share. There are about 8 steps a session, with gaps
//   of some seconds (median 6). Each step adds a tool's answer (median 600 tokens).
// - retrieval: 2,000 documents (Zipf) of some 6,000 tokens behind a short system prompt, then the
//   question. A quarter of the questions have a follow-up in the same conversation.
// - mixed: the three, by thirds of the sessions.
//
// Sessions start uniformly over the duration (a Poisson process given its count). A prompt's partial last block has a
// separate id, and the next turn has another one there. Every id has one parent, so ids form prefix trees; ids are
// numbered in order of first appearance.
//
// All arithmetic is on integers, so a seed gives the same bytes on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "trace/mooncake.h"

namespace kvbm::trace {

enum class Workload : uint8_t { chat, agent, retrieval, mixed };

[[nodiscard]] std::optional<Workload> workload_named(std::string_view name) noexcept;

struct GenerateOptions {
  Workload workload = Workload::chat;
  uint64_t seed = 1;
  uint32_t requests = 12000;
  uint32_t duration_s = 3600;
};

// Fails with invalid_argument for no requests, no duration or more than 10,000,000 requests.
[[nodiscard]] Result<Trace> generate(const GenerateOptions& options);

}  // namespace kvbm::trace
