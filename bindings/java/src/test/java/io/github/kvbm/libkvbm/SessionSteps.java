// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Steps of offers and sessions. */
final class SessionSteps {
  private SessionSteps() {}

  static void add(Steps steps) {
    steps.put("offer.open", in -> openOffer(steps, in));
    steps.put("offer.publish", in -> {
      in.object("offer", Offer.class).publish(in.integer("component", 0), in.integer("first_layer", 0),
          in.integer("n_layers", 0), in.number("begin"), in.number("end"));
      return results();
    });
    steps.put("offer.publish_on_stream", in -> {
      in.object("offer", Offer.class).publishOnStream(in.integer("component", 0), in.integer("first_layer", 0),
          in.integer("n_layers", 0), in.number("begin"), in.number("end"), in.number("stream"));
      return results();
    });
    steps.put("offer.publish_all", in -> {
      in.object("offer", Offer.class).publishAll();
      return results();
    });
    steps.put("offer.abort", in -> {
      in.object("offer", Offer.class).abort(in.text("reason"));
      return results();
    });
    steps.put("offer.wait", in -> {
      in.object("offer", Offer.class).await(in.time("timeout_ns", 0));
      return results();
    });
    steps.put("session.open", in -> openSession(steps, in));
    steps.put("session.wait", in -> {
      in.object("session", Session.class).await(in.time("timeout_ns", 0));
      return results();
    });
    steps.put("session.wait_layer", in -> {
      in.object("session", Session.class)
          .awaitLayer(in.integer("component", 0), in.integer("layer", 0), in.time("timeout_ns", 0));
      return results();
    });
    steps.put("session.abort", in -> {
      in.object("session", Session.class).abort(in.text("reason"));
      return results();
    });
  }

  private static Map<String, Object> openOffer(Steps steps, Arguments in) {
    OfferOptions options = new OfferOptions().rank(in.integer("rank", 0)).firstPosition(in.number("first_position", 0))
        .positions(in.number("begin", 0), in.number("end", 0));
    if (in.has("timeout_ns")) options.timeout(in.time("timeout_ns", 0));
    Offer offer = Offer.open(in.object("cache", Cache.class), RequestId.of(in.hex("request")), in.integers("block_ids"),
        options, in.object("queue", CompletionQueue.class));
    if (offer.done() != null) steps.userData.put(offer.done(), in.number("user_data", 0));
    return results("offer", offer);
  }

  private static Map<String, Object> openSession(Steps steps, Arguments in) {
    SessionOptions options = new SessionOptions().rank(in.integer("rank", 0), in.integer("ranks", 0))
        .noLayers(in.flag("no_layers")).firstPosition(in.number("first_position", 0))
        .positions(in.number("begin", 0), in.number("end", 0)).budgetBytes(in.number("budget_bytes", 0));
    if (in.has("timeout_ns")) options.timeout(in.time("timeout_ns", 0));
    if (in.has("stream")) options.stream(in.number("stream"));
    List<Source> sources = new ArrayList<>();
    for (Arguments one : in.objects("sources")) {
      sources.add(new Source(one.text("node"), one.integer("rank", 0)));
      one.noneLeft();
    }
    Session session = Session.open(in.object("cache", Cache.class), RequestId.of(in.hex("request")),
        in.integers("block_ids"), sources, options, in.object("queue", CompletionQueue.class), null);
    if (session.done() != null) steps.userData.put(session.done(), in.number("user_data", 0));
    return results("session", session);
  }
}
