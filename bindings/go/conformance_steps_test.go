// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"fmt"
	"os"
	"time"
	"unsafe"
)

// The step kinds. Each reads its arguments, makes its call and gives its results; a failure of the library is err.
var steps = map[string]func(r *runner, a *arguments) (results, error){
	"release": func(r *runner, a *arguments) (results, error) {
		return nil, object[closer](a, "it").Close()
	},
	"memory.create": func(r *runner, a *arguments) (results, error) {
		n := a.int("bytes")
		data := make([]byte, n+64)
		skip := -int(uintptr(unsafe.Pointer(&data[0]))) & 63
		return results{"memory": &memory{data: data[skip : skip+n : skip+n]}}, nil
	},
	"memory.fill": func(r *runner, a *arguments) (results, error) {
		return nil, a.rows(func(row []byte, seed uint32) error { fillPattern(row, seed); return nil })
	},
	"memory.compare": func(r *runner, a *arguments) (results, error) { return nil, a.rows(comparePattern) },
	"memory.clear": func(r *runner, a *arguments) (results, error) {
		m, value := object[*memory](a, "memory"), byte(a.uint64("value"))
		for i := range m.data {
			m.data[i] = value
		}
		return nil, nil
	},
	"file.write": func(r *runner, a *arguments) (results, error) {
		return nil, os.WriteFile(a.text("path"), []byte(a.text("text")), 0o600)
	},
	"items.read": func(r *runner, a *arguments) (results, error) {
		items := object[*submitted](a, "items")
		if !items.done {
			throw("the completion was not taken")
		}
		return results{"items": statusList(items.statuses), "text": shown(items.statuses)}, nil
	},
	"show": func(r *runner, a *arguments) (results, error) {
		return results{"text": fmt.Sprint(a.get("it"))}, nil
	},
	"status.name": func(r *runner, a *arguments) (results, error) {
		s := Status(a.int("status"))
		return results{"name": s.String(), "text": s.Text(), "band": number(s.Band())}, nil
	},
	"version": func(r *runner, a *arguments) (results, error) {
		return results{"number": number(VersionNumber()), "text": Version()}, nil
	},

	"context.create": func(r *runner, a *arguments) (results, error) {
		o := &ContextOptions{ConfigFile: a.text("config_file"), Threads: a.uint32("threads"), Settings: map[string]string{}}
		if settings := a.get("settings"); settings != nil {
			for name, value := range settings.(map[string]any) {
				o.Settings[name] = fmt.Sprint(value)
			}
		}
		c, err := NewContext(o)
		return made(r, "context", c, err)
	},
	"context.config": func(r *runner, a *arguments) (results, error) {
		text, err := object[*Context](a, "context").Config()
		return results{"text": text}, err
	},
	"config.reference": func(r *runner, a *arguments) (results, error) {
		text, err := ConfigReference()
		return results{"text": text}, err
	},
	"queue.create": func(r *runner, a *arguments) (results, error) {
		q, err := object[*Context](a, "context").NewQueue(a.int("depth"))
		return made(r, "queue", q, err)
	},
	"queue.wait":   stepQueueWait,
	"queue.events": stepQueueEvents,
	"queue.cancel": func(r *runner, a *arguments) (results, error) {
		return nil, object[*Queue](a, "queue").Cancel(a.uint64("operation"))
	},

	"geometry.create": func(r *runner, a *arguments) (results, error) {
		components := each(a, "components", func(value any) Component {
			c := sub(value)
			defer c.checkUsed()
			return Component{ComponentKind(c.uint32("kind")), Element(c.uint32("element")), c.uint32("layers"),
				c.uint32("heads"), c.uint32("head_dim"), c.uint32("window_tokens"), c.uint64("state_bytes")}
		})
		g, err := NewGeometry(a.uint32("tokens_per_block"), a.uint32("units"), components)
		if err != nil {
			return nil, err
		}
		fingerprint, err := g.Fingerprint()
		out, _ := made(r, "geometry", g, nil)
		out["fingerprint"] = fmt.Sprintf("%016x", fingerprint)
		return out, err
	},
	"geometry.record_bytes": func(r *runner, a *arguments) (results, error) {
		var shard *Shard
		if value := a.get("shard"); value != nil {
			s := toShard(value)
			shard = &s
		}
		n, err := object[*Geometry](a, "geometry").RecordBytes(a.uint32("component"), shard)
		return results{"bytes": number(n)}, err
	},
	"key.chain": func(r *runner, a *arguments) (results, error) {
		return keyResults(object[*Namespace](a, "namespace").KeyChain(a.key("previous"), a.tokens("tokens"),
			a.int("block_tokens"), each(a, "extras", toBytes)))
	},
	"key.content": func(r *runner, a *arguments) (results, error) {
		return keyResults(object[*Namespace](a, "namespace").KeyContent(a.tokens("tokens"), a.int("block_tokens"),
			each(a, "extras", toBytes)))
	},
	"key.from_hashes": func(r *runner, a *arguments) (results, error) {
		return keyResults(object[*Namespace](a, "namespace").KeyFromHashes(toBytes(a.get("hashes")),
			a.int("hash_bytes")))
	},

	"namespace.open": func(r *runner, a *arguments) (results, error) {
		o := &NamespaceOptions{Tenant: a.text("tenant"), Model: a.text("model"), Adapter: a.text("adapter"),
			Geometry: object[*Geometry](a, "geometry"), Epoch: a.uint64("epoch"), QuotaBytes: a.uint64("quota_bytes"),
			QuotaMode: QuotaMode(a.uint32("quota_mode")), Codec: a.text("codec"), AllowLossy: a.uint32("allow_lossy") != 0,
			WeakHashes: a.uint32("weak_hashes") != 0}
		if secret := a.get("secret"); secret != nil {
			o.Secret = toBytes(secret)
		}
		ns, err := object[*Manager](a, "manager").OpenNamespace(o)
		if err != nil {
			return nil, err
		}
		id, err := ns.ID()
		out, _ := made(r, "namespace", ns, nil)
		out["id"] = id.String()
		return out, err
	},
	"namespace.id": func(r *runner, a *arguments) (results, error) {
		id, err := object[*Namespace](a, "namespace").ID()
		return results{"id": id.String()}, err
	},
	"namespace.invalidate": func(r *runner, a *arguments) (results, error) {
		return nil, object[*Namespace](a, "namespace").Invalidate()
	},
	"namespace.reset": func(r *runner, a *arguments) (results, error) {
		return nil, object[*Namespace](a, "namespace").Reset()
	},
	"namespace.set_quota": func(r *runner, a *arguments) (results, error) {
		return nil, object[*Namespace](a, "namespace").SetQuota(a.uint64("quota_bytes"), QuotaMode(a.uint32("quota_mode")))
	},
}

// made keeps a new object for the end of the scenario.
func made[T closer](r *runner, name string, it T, err error) (results, error) {
	if err != nil {
		return nil, err
	}
	r.objects = append(r.objects, it)
	return results{name: it}, nil
}

func keyResults(keys []Key, err error) (results, error) {
	return results{"keys": keyList(keys), "n": number(len(keys))}, err
}

// A store or load that was given to a queue; its statuses come with its completion.
type submitted struct {
	queue     *Queue
	operation uint64
	statuses  []Status
	done      bool
}

func (s *submitted) Close() error { return nil }

func (r *runner) completed(q *Queue, c *Completion) {
	for _, o := range r.objects {
		if s, is := o.(*submitted); is && s.queue == q && s.operation == c.Operation &&
			(c.Op == OpStore || c.Op == OpLoad) {
			s.statuses, s.done = c.Items, true
		}
	}
}

func timeoutContext(ns uint64) (context.Context, context.CancelFunc) {
	if int64(ns) < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(ns))
}

func stepQueueWait(r *runner, a *arguments) (results, error) {
	q, n, timeout := object[*Queue](a, "queue"), a.int("n"), a.uint64("timeout_ns")
	ctx, cancel := timeoutContext(timeout)
	defer cancel()
	came := []any{}
	for len(came) < n {
		out := make([]Completion, n-len(came))
		var got int
		var err error
		if timeout == 0 {
			got, err = q.Poll(out)
		} else {
			got, err = q.Wait(ctx, out)
		}
		for i := range out[:got] {
			c := &out[i]
			r.completed(q, c)
			came = append(came, results{"user_data": number(c.UserData), "operation": decimal(c.Operation),
				"op": number(c.Op), "status": number(c.Status), "items_done": number(c.ItemsDone),
				"items": number(c.ItemCount), "bytes": number(c.Bytes), "text": shown(*c)})
		}
		if ctx.Err() != nil || timeout == 0 {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return results{"completions": came}, nil
}

func stepQueueEvents(r *runner, a *arguments) (results, error) {
	q, n := object[*Queue](a, "queue"), a.int("n")
	ctx, cancel := timeoutContext(a.uint64("timeout_ns"))
	defer cancel()
	came := []any{}
	for len(came) < n {
		out := make([]Event, n-len(came))
		got, err := q.WaitEvents(ctx, out)
		for _, e := range out[:got] {
			came = append(came, results{"sequence": number(e.Sequence), "kind": number(e.Kind), "tier": number(e.Tier),
				"namespace_id": e.NamespaceID.String(), "key": e.Key.String(), "parent": e.Parent.String(),
				"component": number(e.Component), "text": shown(e)})
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return results{"events": came}, nil
}

// partly turns the error of a batch that was done in part into its status.
func partly(err error) (int64, error) {
	if _, is := err.(*PartialError); is {
		return number(StatusPartial), nil
	}
	return number(StatusOK), err
}
