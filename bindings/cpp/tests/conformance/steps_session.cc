// Step kinds of offers and sessions.
#include <cstring>

#include "run.h"

namespace conformance {
namespace {

kvbm_request_id_t request_of(Args& args) {
  const kvbm_key_t bytes = Args::to_key(args.at("request"));
  kvbm_request_id_t out;
  std::memcpy(out.bytes, bytes.bytes, sizeof out.bytes);
  return out;
}

// Sets the fields that both kinds of options have.
template <class Options>
void common_options(Args& args, Options& options) {
  args.number("rank", options.rank);
  args.number("first_position", options.first_position);
  args.number("begin", options.begin);
  args.number("end", options.end);
  args.number("timeout_ns", options.timeout_ns);
}

Json open_offer(Args& args) {
  auto options = kvbm::offer_options();
  common_options(args, options);
  uint64_t user_data = 0;
  args.number("user_data", user_data);
  return Json::object(
      {{"offer", args.objects().add(kvbm::Offer(args.object<kvbm::Cache>("cache"), request_of(args),
                                                args.numbers<uint32_t>("block_ids"), options,
                                                args.object_or_null<kvbm::Queue>("queue"), user_data))}});
}

Json open_session(Args& args) {
  auto options = kvbm::session_options();
  common_options(args, options);
  args.number("ranks", options.ranks);
  args.number("no_layers", options.no_layers);
  args.number("budget_bytes", options.budget_bytes);
  args.stream_of(options);
  uint64_t user_data = 0;
  args.number("user_data", user_data);
  std::vector<std::string> names;
  std::vector<kvbm_source_t> sources;
  for (const Json& source : args.at("sources")) names.push_back(source.at("node").get<std::string>());
  for (std::size_t i = 0; i < names.size(); ++i) {
    sources.push_back({names[i].c_str(), Args::to_number<uint32_t>(args.at("sources")[i].at("rank")), 0});
  }
  return Json::object(
      {{"session", args.objects().add(kvbm::Session(args.object<kvbm::Cache>("cache"), request_of(args),
                                                    args.numbers<uint32_t>("block_ids"), sources, options,
                                                    args.object_or_null<kvbm::Queue>("queue"), user_data))}});
}

// Ends a session. In scenarios it is an error if it is still in progress.
Json ended(bool over) { return kvbm::check(over ? KVBM_OK : KVBM_ERR_AGAIN), Json(); }

template <class T>
Json abort_it(Args& args, const char* name) {
  const std::string reason = args.has("reason") ? args.text("reason") : "";
  args.object<T>(name).abort(args.has("reason") ? reason.c_str() : nullptr);
  return {};
}

}  // namespace

void add_session_steps(Steps& steps) {
  steps["offer.open"] = open_offer;
  steps["offer.publish"] = [](Args& args) {
    args.object<kvbm::Offer>("offer").publish(args.number<uint32_t>("component"), args.number<uint32_t>("first_layer"),
                                              args.number<uint32_t>("n_layers"), args.number<uint64_t>("begin"),
                                              args.number<uint64_t>("end"));
    return Json();
  };
  steps["offer.publish_on_stream"] = [](Args& args) {
    args.object<kvbm::Offer>("offer").publish_on_stream(
        args.number<uint32_t>("component"), args.number<uint32_t>("first_layer"), args.number<uint32_t>("n_layers"),
        args.number<uint64_t>("begin"), args.number<uint64_t>("end"), args.stream("stream"));
    return Json();
  };
  steps["offer.publish_all"] = [](Args& args) { return args.object<kvbm::Offer>("offer").publish_all(), Json(); };
  steps["offer.abort"] = [](Args& args) { return abort_it<kvbm::Offer>(args, "offer"); };
  steps["offer.wait"] = [](Args& args) {
    return ended(args.object<kvbm::Offer>("offer").wait(args.number<uint64_t>("timeout_ns")));
  };
  steps["session.open"] = open_session;
  steps["session.wait"] = [](Args& args) {
    return ended(args.object<kvbm::Session>("session").wait(args.number<uint64_t>("timeout_ns")));
  };
  steps["session.wait_layer"] = [](Args& args) {
    return ended(args.object<kvbm::Session>("session").wait_layer(
        args.number<uint32_t>("component"), args.number<uint32_t>("layer"), args.number<uint64_t>("timeout_ns")));
  };
  steps["session.abort"] = [](Args& args) { return abort_it<kvbm::Session>(args, "session"); };
}

}  // namespace conformance
