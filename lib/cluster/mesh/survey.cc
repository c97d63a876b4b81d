#include "cluster/mesh/survey.h"

#include <memory>
#include <utility>

namespace kvbm::cluster {

namespace {

struct Survey {
  std::vector<NodeAnswer> answers;
  UniqueFunction<void(std::vector<NodeAnswer>)> done;
  size_t waiting = 1;

  void answered() {
    if (--waiting == 0) done(std::move(answers));
  }
};

}  // namespace

void survey(Mesh& mesh, std::vector<Identity> ids, uint64_t deadline_ns,
            UniqueFunction<void(std::vector<NodeAnswer>)> done) {
  const auto state = std::make_shared<Survey>();
  const std::vector<PeerLink*> ready = mesh.ready();
  state->answers.resize(ready.size());
  state->done = std::move(done);
  for (size_t i = 0; i < ready.size(); ++i) {
    state->answers[i].node = ready[i]->peer().node;
    auto batch = std::make_unique<FindBatch>();
    batch->ids = ids;
    batch->deadline_ns = deadline_ns;
    batch->done = [state, i](FindBatch& answer) {
      NodeAnswer& out = state->answers[i];
      out.whole = true;
      for (size_t k = 0; k < answer.ids.size(); ++k) {
        if (answer.status[k] == Code::ok) continue;
        out.whole = false;
        answer.found[k] = {};
      }
      out.found = std::move(answer.found);
      state->answered();
    };
    ++state->waiting;
    ready[i]->find(std::move(batch));
  }
  state->answered();
}

}  // namespace kvbm::cluster
