#include "trace/generate.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_map>

#include "base/crypto/random.h"

namespace kvbm::trace {
namespace {

constexpr uint32_t kMaxRequests = 10'000'000;
constexpr uint32_t kMaxTokens = 131'072;  // the context limit of the modelled services

// A log-normal quantity. `spread` is sigma / ln 2 in units of 2^-16, so that all stays integer.
struct Spread {
  uint32_t median;
  uint32_t spread;
};

// Share of sessions (of 100) in which every turn is followed by another with probability `goes_on` of 100.
struct Stay {
  uint32_t share;
  uint32_t goes_on;
};

struct Model {
  std::array<Stay, 3> stays;
  Spread gap_ms;
  Spread first_prompt;  // tokens after the shared ones
  Spread turn;          // tokens that a turn's question or tool adds
  Spread output;
  uint32_t shared;  // number of shared prefixes (system prompts, documents)
  Spread shared_tokens;
  uint32_t common_tokens;  // in front of the shared prefixes, the same for all
};

// Sigma 1.03 makes quartiles of 66 and 264 s around 123 s: 1.03 / ln 2 = 1.486.
constexpr Model kChat{{Stay{50, 12}, Stay{40, 38}, Stay{10, 78}},
                      {123'000, 97'400},
                      {6'400, 113'000},
                      {110, 140'000},
                      {320, 60'000},
                      1,
                      {512, 0},
                      0};
constexpr Model kAgent{{Stay{20, 50}, Stay{50, 88}, Stay{30, 94}},
                       {6'000, 100'000},
                       {700, 80'000},
                       {600, 110'000},
                       {120, 70'000},
                       16,
                       {5'000, 40'000},
                       0};
constexpr Model kRetrieval{{Stay{60, 10}, Stay{30, 40}, Stay{10, 60}},
                           {90'000, 97'400},
                           {80, 60'000},
                           {60, 60'000},
                           {250, 60'000},
                           2'000,
                           {6'000, 90'000},
                           512};

uint64_t mix(uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns 2^(x / 2^32) of a fraction x < 2^32, times 2^32: the Taylor series of 2^x to the fifth term.
uint64_t exp2_fraction(uint64_t x) noexcept {
  constexpr std::array<uint64_t, 5> kTerms = {2977044472, 1031764991, 238388332, 41309550, 5726720};
  uint64_t sum = 0;
  for (size_t i = kTerms.size(); i > 0; --i) sum = ((sum + kTerms[i - 1]) * x) >> 32;
  return sum + (uint64_t{1} << 32);
}

// Returns a standard normal in units of 2^-16, by the sum of twelve uniforms (tails end at 6).
int64_t normal(Random& random) noexcept {
  int64_t sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<int64_t>(random.next() >> 48);
  return sum - 6 * 65'536;
}

uint64_t draw(Random& random, const Spread& spread) noexcept {
  const int64_t exponent = normal(random) * static_cast<int64_t>(spread.spread);  // units of 2^-32
  const int64_t whole = exponent >> 32;
  const uint64_t fraction = static_cast<uint64_t>(exponent) & 0xFFFFFFFFU;
  const uint64_t scaled = (uint64_t{spread.median} * exp2_fraction(fraction)) >> 12;  // units of 2^-20
  return (whole >= 0 ? scaled << std::min<int64_t>(whole, 16) : scaled >> std::min<int64_t>(-whole, 63)) >> 20;
}

// Zipf of exponent about 1: rank n has weight 1 / (n + 1), found in the harmonic sum.
class Zipf {
 public:
  explicit Zipf(uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; ++i) sums_.push_back(sum += (uint64_t{1} << 32) / (i + 1));
  }
  [[nodiscard]] uint32_t draw(Random& random) const {
    const uint64_t at = random.below(sums_.back());
    return static_cast<uint32_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<uint64_t> sums_;
};

struct Prompt {
  uint64_t timestamp_ms;
  uint32_t session;
  uint32_t turn;
  uint32_t input;
  uint32_t output;
};

// A session's prompt has `common` tokens, then `shared` tokens of prefix `prefix`, then its own.
struct Session {
  uint32_t model;
  uint32_t prefix;
  uint32_t common;
  uint32_t shared;
};

class Generator {
 public:
  explicit Generator(const GenerateOptions& options) : options_(options), random_(options.seed) {
    for (const Model* model : {&kChat, &kAgent, &kRetrieval}) zipf_.emplace_back(model->shared);
  }

  Trace run() {
    while (prompts_.size() < options_.requests) add_session();
    prompts_.resize(options_.requests);
    std::sort(prompts_.begin(), prompts_.end(), [](const Prompt& a, const Prompt& b) {
      return std::tie(a.timestamp_ms, a.session, a.turn) < std::tie(b.timestamp_ms, b.session, b.turn);
    });
    Trace trace;
    for (const Prompt& prompt : prompts_) write(prompt, trace);
    return trace;
  }

 private:
  void add_session() {
    const bool mixed = options_.workload == Workload::mixed;
    const auto which = static_cast<uint32_t>(mixed ? sessions_.size() % 3 : static_cast<size_t>(options_.workload));
    const Model& model = which == 0 ? kChat : which == 1 ? kAgent : kRetrieval;
    const auto id = static_cast<uint32_t>(sessions_.size());
    const uint32_t prefix = zipf_[which].draw(random_);
    // The length of a shared prefix depends on the prefix alone, for every session.
    SeededRandom of_prefix(mix(options_.seed ^ (uint64_t{which} << 32) ^ prefix));
    const auto shared =
        static_cast<uint32_t>(std::clamp<uint64_t>(draw(of_prefix, model.shared_tokens), 64, kMaxTokens / 2));
    sessions_.push_back({which, prefix, model.common_tokens, shared});
    const uint32_t goes_on = stay(model);
    const uint64_t end = uint64_t{options_.duration_s} * 1000;
    uint64_t at = random_.below(end);
    uint64_t input = model.common_tokens + shared + 1 + draw(random_, model.first_prompt);
    for (uint32_t turn = 0; at < end && input <= kMaxTokens; ++turn) {
      const auto output = static_cast<uint32_t>(1 + std::min<uint64_t>(draw(random_, model.output), 8191));
      prompts_.push_back({at, id, turn, static_cast<uint32_t>(input), output});
      if (random_.below(100) >= goes_on) return;
      at += 1 + draw(random_, model.gap_ms);
      input += output + 1 + draw(random_, model.turn);
    }
  }

  uint32_t stay(const Model& model) {
    uint64_t at = random_.below(100);
    for (const Stay& stay : model.stays) {
      if (at < stay.share) return stay.goes_on;
      at -= stay.share;
    }
    return model.stays.back().goes_on;
  }

  void write(const Prompt& prompt, Trace& trace) {
    Request request{prompt.timestamp_ms, prompt.input, prompt.output, trace.hash_ids.size(), 0};
    request.count = (prompt.input + kTokensPerBlock - 1) / kTokensPerBlock;
    uint64_t parent = 0;
    for (uint32_t block = 0; block < request.count; ++block) {
      // A block's name is its parent's mixed with a number for the source of its tokens.
      parent = mix(parent * 0x9E3779B97F4A7C15ULL + content(prompt, block));
      const auto [it, fresh] = ids_.try_emplace(parent, ids_.size());
      trace.hash_ids.push_back(it->second);
    }
    trace.requests.push_back(request);
  }

  [[nodiscard]] uint64_t content(const Prompt& prompt, uint32_t block) const {
    const Session& session = sessions_[prompt.session];
    const uint32_t end = (block + 1) * kTokensPerBlock;
    const uint64_t origin = uint64_t{session.model + 1} << 60;
    if (end <= session.common) return origin;
    if (end <= session.common + session.shared) return origin | uint64_t{session.prefix + 1} << 1;
    if (end <= prompt.input) return origin | uint64_t{session.prefix + 1} << 1 | (uint64_t{prompt.session} + 1) << 28;
    // The partial last block also contains the end of the prompt, which differs by turn.
    return origin | (uint64_t{prompt.turn} + 1) << 1 | (uint64_t{prompt.session} + 1) << 28 | 1;
  }

  GenerateOptions options_;
  SeededRandom random_;
  std::vector<Zipf> zipf_;
  std::vector<Session> sessions_;
  std::vector<Prompt> prompts_;
  std::unordered_map<uint64_t, uint64_t> ids_;
};

}  // namespace

std::optional<Workload> workload_named(std::string_view name) noexcept {
  if (name == "chat") return Workload::chat;
  if (name == "agent") return Workload::agent;
  if (name == "retrieval") return Workload::retrieval;
  if (name == "mixed") return Workload::mixed;
  return std::nullopt;
}

Result<Trace> generate(const GenerateOptions& options) {
  if (options.requests == 0 || options.requests > kMaxRequests) {
    return Status(Code::invalid_argument, "requests must be from 1 to 10,000,000");
  }
  if (options.duration_s == 0) return Status(Code::invalid_argument, "the duration must be at least one second");
  return Generator(options).run();
}

}  // namespace kvbm::trace
