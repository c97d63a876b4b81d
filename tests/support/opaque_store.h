// A manager of the C interface with one namespace and one attached cache of opaque blocks. Blocks are named by numbers:
// the words of block n follow from n and from where they are.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kvbm.h"

namespace kvbm::test {

// A cache with its engine blocks in `memory`, one after the other.
inline kvbm_status_t attach_opaque(kvbm_manager_t* manager, kvbm_namespace_t* ns, void* memory, uint64_t bytes,
                                   uint64_t block_bytes, kvbm_cache_t** out, kvbm_error_t* error) {
  kvbm_tensor_t tensor{memory, bytes, 0, block_bytes};
  kvbm_cache_part_t part{};
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_t options;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = static_cast<uint32_t>(bytes / block_bytes);
  options.parts = &part;
  options.n_parts = 1;
  return kvbm_cache_attach(manager, ns, &options, out, error);
}

class OpaqueStore {
 public:
  OpaqueStore() = default;
  ~OpaqueStore() { close(); }
  OpaqueStore(const OpaqueStore&) = delete;
  OpaqueStore& operator=(const OpaqueStore&) = delete;

  // Opens the store with an engine of so many blocks of options.block_bytes; `context` may be null. error() has the
  // details of a refusal.
  kvbm_status_t open(const kvbm_manager_options_t& options, const char* model, uint32_t blocks,
                     const kvbm_context_options_t* context = nullptr) {
    words_ = options.block_bytes / 8;
    memory_.resize(blocks * words_);
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = model;
    kvbm_status_t status = kvbm_context_create(context, &context_, &error_);
    if (status == KVBM_OK) status = kvbm_manager_create(context_, &options, &manager_, &error_);
    if (status == KVBM_OK) status = kvbm_namespace_open(manager_, &who, &ns_, &error_);
    if (status != KVBM_OK) return status;
    return attach_opaque(manager_, ns_, memory_.data(), memory_.size() * 8, options.block_bytes, &cache_, &error_);
  }
  void close() {
    kvbm_cache_release(cache_);
    kvbm_namespace_release(ns_);
    kvbm_manager_release(manager_);
    kvbm_context_release(context_);
    cache_ = nullptr, ns_ = nullptr, manager_ = nullptr, context_ = nullptr;
  }

  [[nodiscard]] kvbm_manager_t* manager() const { return manager_; }
  [[nodiscard]] kvbm_namespace_t* ns() const { return ns_; }
  [[nodiscard]] kvbm_cache_t* cache() const { return cache_; }
  [[nodiscard]] const char* error() const { return error_.message; }
  [[nodiscard]] std::vector<uint64_t>& memory() { return memory_; }

  // Returns the engine's block `id`.
  [[nodiscard]] uint64_t* block(uint64_t id) { return memory_.data() + id * words_; }
  [[nodiscard]] kvbm_key_t key(uint64_t number) const {
    kvbm_key_t out{};
    uint8_t hash[16] = {};
    std::memcpy(hash, &number, sizeof number);
    kvbm_key_from_hashes(ns_, hash, sizeof hash, 1, &out);
    return out;
  }
  void fill(uint64_t number, void* bytes) const {
    for (uint64_t i = 0; i < words_; ++i) {
      const uint64_t word = word_of(number, i);
      std::memcpy(static_cast<char*>(bytes) + i * 8, &word, 8);
    }
  }
  [[nodiscard]] bool is(uint64_t number, const void* bytes) const {
    for (uint64_t i = 0; i < words_; ++i) {
      const uint64_t word = word_of(number, i);
      if (std::memcmp(static_cast<const char*>(bytes) + i * 8, &word, 8) != 0) return false;
    }
    return true;
  }

 private:
  static uint64_t word_of(uint64_t number, uint64_t i) {
    return (number + 1) * 0x9E3779B97F4A7C15ULL ^ (i * 0xBF58476D1CE4E5B9ULL);
  }

  uint64_t words_ = 0;  // of a block
  std::vector<uint64_t> memory_;
  kvbm_error_t error_{};
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  kvbm_cache_t* cache_ = nullptr;
};

}  // namespace kvbm::test
