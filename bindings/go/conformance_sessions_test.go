// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"math"
	"time"
)

func init() {
	for name, do := range map[string]func(r *runner, a *arguments) (results, error){
		"offer.open": stepOfferOpen,
		"offer.publish": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Offer](a, "offer").Publish(a.uint32("component"), a.uint32("first_layer"),
				a.uint32("n_layers"), a.uint64("begin"), a.uint64("end"))
		},
		"offer.publish_on_stream": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Offer](a, "offer").PublishOnStream(a.uint32("component"), a.uint32("first_layer"),
				a.uint32("n_layers"), a.uint64("begin"), a.uint64("end"), *a.stream())
		},
		"offer.publish_all": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Offer](a, "offer").PublishAll()
		},
		"offer.abort": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Offer](a, "offer").Abort(a.text("reason"))
		},
		"offer.wait": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Offer](a, "offer").waitNS("offer.wait", a.uint64("timeout_ns"))
		},
		"session.open": stepSessionOpen,
		"session.wait": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Session](a, "session").waitNS("session.wait", a.uint64("timeout_ns"))
		},
		"session.wait_layer": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Session](a, "session").waitLayerNS("session.wait_layer", a.uint32("component"),
				a.uint32("layer"), a.uint64("timeout_ns"))
		},
		"session.abort": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Session](a, "session").Abort(a.text("reason"))
		},
	} {
		steps[name] = do
	}
}

func toRequest(value any) RequestID { return RequestID(toKey(value)) }

// timeoutOr gives a session's time in the form of the options; a time that is longer than Go's is as good as for ever.
func (a *arguments) timeoutOr() time.Duration {
	if d := a.timeout("timeout_ns"); d != 0 || a.values["timeout_ns"] == nil {
		return d
	}
	return math.MaxInt64
}

func stepOfferOpen(r *runner, a *arguments) (results, error) {
	o := &OfferOptions{Rank: a.uint32("rank"), FirstPosition: a.uint64("first_position"), Begin: a.uint64("begin"),
		End: a.uint64("end"), Timeout: a.timeoutOr(), Queue: object[*Queue](a, "queue"), UserData: a.uint64("user_data")}
	offer, err := object[*Cache](a, "cache").OpenOffer(toRequest(a.get("request")), each(a, "block_ids", toUint32), o)
	return made(r, "offer", offer, err)
}

func stepSessionOpen(r *runner, a *arguments) (results, error) {
	o := &SessionOptions{Rank: a.uint32("rank"), Ranks: a.uint32("ranks"), NoLayers: a.flag("no_layers"),
		FirstPosition: a.uint64("first_position"), Begin: a.uint64("begin"), End: a.uint64("end"),
		Timeout: a.timeoutOr(), BudgetBytes: a.uint64("budget_bytes"), Queue: object[*Queue](a, "queue"),
		UserData: a.uint64("user_data"), Stream: a.stream()}
	sources := each(a, "sources", func(value any) Source {
		s := sub(value)
		defer s.checkUsed()
		return Source{s.text("node"), s.uint32("rank")}
	})
	session, err := object[*Cache](a, "cache").OpenSession(toRequest(a.get("request")), each(a, "block_ids", toUint32),
		sources, o)
	return made(r, "session", session, err)
}
