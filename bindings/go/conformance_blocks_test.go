// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"fmt"
	"time"
)

var background = context.Background()

func init() {
	for name, do := range map[string]func(r *runner, a *arguments) (results, error){
		"manager.allocate": stepAllocate,
		"manager.complete": func(r *runner, a *arguments) (results, error) {
			m, holds, bytes := object[*Manager](a, "manager"), a.holds("blocks"), each(a, "bytes", toUint64)
			if bytes != nil && len(bytes) != len(holds) {
				throw("bytes and blocks differ in length")
			}
			return nil, completeHolds("complete", m.c(), holds, bytes)
		},
		"manager.register": func(r *runner, a *arguments) (results, error) {
			m, ns, holds := object[*Manager](a, "manager"), object[*Namespace](a, "namespace"), a.holds("blocks")
			o := &RegisterOptions{Duplicates: Duplicates(a.uint32("duplicates")), Part: a.part("part"),
				Parent: a.key("parent"), Unchained: a.flag("unchained"), Priority: Priority(a.uint32("priority")),
				Positions: each(a, "positions", toPosition)}
			items, err := registerHolds("register", m.c(), ns.c(), holds, a.keys("keys"), o)
			return results{"blocks": holdList(holds), "items": statusList(items)}, err
		},
		"block.view": stepBlockView,
		"block.clone": func(r *runner, a *arguments) (results, error) {
			holds, err := cloneHolds("clone", object[*Manager](a, "manager").c(), a.holds("blocks"))
			return results{"blocks": holdList(holds)}, err
		},
		"block.release": func(r *runner, a *arguments) (results, error) {
			return nil, releaseHolds("release", object[*Manager](a, "manager").c(), a.holds("blocks"))
		},
		"block.downgrade": func(r *runner, a *arguments) (results, error) {
			holds, err := downgradeHolds("downgrade", object[*Manager](a, "manager").c(), a.holds("blocks"))
			return results{"blocks": holdList(holds)}, err
		},
		"block.upgrade": func(r *runner, a *arguments) (results, error) {
			holds, err := upgradeHolds("upgrade", object[*Manager](a, "manager").c(), a.holds("blocks"))
			return results{"blocks": holdList(holds), "present": present(holds)}, err
		},

		"manager.lookup": func(r *runner, a *arguments) (results, error) {
			o := a.lookupOptions()
			o.Parts = each(a, "parts", toPart)
			return matched(r)(object[*Manager](a, "manager").Lookup(object[*Namespace](a, "namespace"), a.keys("keys"), o))
		},
		"cache.lookup": func(r *runner, a *arguments) (results, error) {
			return matched(r)(object[*Cache](a, "cache").Lookup(a.keys("keys"), a.lookupOptions()))
		},
		"match.items": func(r *runner, a *arguments) (results, error) {
			m := object[*Match](a, "match")
			items, err := m.Items(0, m.Count())
			return results{"count": number(m.Count()), "units": number(m.Units()),
				"items": listOf(items, func(i MatchItem) any {
					return results{"tier": number(i.Tier), "parts_needed": number(i.PartsNeeded), "bytes": number(i.Bytes),
						"below_bytes": number(i.BelowBytes), "text": shown(i)}
				})}, err
		},
		"match.blocks": func(r *runner, a *arguments) (results, error) {
			holds, err := object[*Match](a, "match").blockHolds("match.blocks", a.uint32("part"), a.int("first"), a.int("n"))
			return results{"blocks": holdList(holds), "present": present(holds)}, err
		},

		"cache.attach": stepCacheAttach,
		"cache.store":  stepCacheStore,
		"cache.load":   stepCacheLoad,
	} {
		steps[name] = do
	}
}

func stepAllocate(r *runner, a *arguments) (results, error) {
	m, ns := object[*Manager](a, "manager"), object[*Namespace](a, "namespace")
	evicted := make([]Key, 64)
	holds, n, err := allocateHolds("allocate", m.c(), ns.c(), a.int("n"), evicted)
	return results{"blocks": holdList(holds), "n_evicted": number(n),
		"evicted": keyList(evicted[:min(n, len(evicted))])}, err
}

func stepBlockView(r *runner, a *arguments) (results, error) {
	m, holds := object[*Manager](a, "manager"), a.holds("blocks")
	fill, compare := a.get("fill"), a.get("compare")
	views, err := viewsOf("view", m.c(), holds)
	if err != nil {
		return nil, err
	}
	for i, v := range views {
		if fill != nil {
			fillPattern(v.Data, toUint32(fill)+uint32(i))
		}
		if compare != nil {
			if err := comparePattern(v.Data, toUint32(compare)+uint32(i)); err != nil {
				return nil, fmt.Errorf("block %d: %w", i, err)
			}
		}
	}
	return results{"bytes": listOf(views, func(v View) any { return number(len(v.Data)) }),
		"slots": listOf(views, func(v View) any { return number(v.Slot) })}, nil
}

func (a *arguments) lookupOptions() *LookupOptions {
	return &LookupOptions{Mode: LookupMode(a.uint32("mode")), HostOnly: a.flag("host_only"), NoUse: a.flag("no_use"),
		UnitKeys: a.keys("unit_keys"), AskNodes: timeForNodes(a)}
}

func matched(r *runner) func(*Match, error) (results, error) {
	return func(m *Match, err error) (results, error) {
		if err != nil || m == nil {
			return results{"match": nil, "n": int64(0)}, err
		}
		r.objects = append(r.objects, m)
		return results{"match": m, "n": number(m.Hits())}, nil
	}
}

func stepCacheAttach(r *runner, a *arguments) (results, error) {
	o := &CacheOptions{Blocks: a.int("n_blocks"), Memory: MemoryKind(a.uint32("memory")), Device: a.uint32("device")}
	o.Parts = each(a, "parts", func(value any) CachePart {
		p := sub(value)
		defer p.checkUsed()
		return CachePart{Part: p.partMembers(), Form: Form(p.uint32("form")), Tensors: each(p, "tensors", toTensor)}
	})
	c, err := object[*Manager](a, "manager").AttachCache(object[*Namespace](a, "namespace"), o)
	return made(r, "cache", c, err)
}

func toTensor(value any) Tensor {
	t := sub(value)
	defer t.checkUsed()
	in, offset, bytes := object[*memory](t, "memory"), t.uint64("offset"), t.uint64("bytes")
	data := in.data
	if offset+bytes > uint64(len(data)) {
		throw("the tensor is longer than its memory")
	}
	if in.address != 0 {
		return Tensor{Address: in.address + uintptr(offset), Bytes: bytes, BlockStride: t.uint64("block_stride"),
			PageBytes: t.uint64("page_bytes")}
	}
	return Tensor{Data: data[offset : offset+bytes], BlockStride: t.uint64("block_stride"), PageBytes: t.uint64("page_bytes")}
}

func stepCacheStore(r *runner, a *arguments) (results, error) {
	c, keys, ids := object[*Cache](a, "cache"), a.keys("keys"), each(a, "block_ids", toUint32)
	o := &StoreOptions{Priority: Priority(a.uint32("priority")), Parent: a.key("parent"), Unchained: a.flag("unchained"),
		Positions: each(a, "positions", toPosition), Timeout: a.timeout("timeout_ns"), UnitKeys: a.keys("unit_keys"),
		Stream: a.stream()}
	q, userData := object[*Queue](a, "queue"), a.uint64("user_data")
	if q == nil {
		return ran(len(keys), c.Store(background, keys, ids, o))
	}
	operation, err := c.SubmitStore(q, keys, ids, o, userData)
	return r.submitted(q, operation, err)
}

func stepCacheLoad(r *runner, a *arguments) (results, error) {
	c, m, ids := object[*Cache](a, "cache"), object[*Match](a, "match"), each(a, "block_ids", toUint32)
	o := &LoadOptions{FirstKey: a.int("first_key"), AnyPosition: a.flag("any_position"),
		FirstLayer: a.uint32("first_layer"), Layers: a.uint32("n_layers"), KeepBelow: a.flag("keep_below"),
		ComputeBlock: time.Duration(a.int("compute_block_ns")),
		Positions:    each(a, "positions", toPosition), Timeout: a.timeout("timeout_ns"), Stream: a.stream(),
		WaitLayers: WaitLayers(a.uint32("wait_layers"))}
	q, userData := object[*Queue](a, "queue"), a.uint64("user_data")
	if q == nil {
		return ran((len(ids)/c.parts+c.units-1)/c.units, c.Load(background, m, ids, o))
	}
	operation, err := c.SubmitLoad(q, m, ids, o, userData)
	return r.submitted(q, operation, err)
}

func ran(n int, err error) (results, error) {
	items := make([]Status, n)
	if partial, is := err.(*PartialError); is {
		items = partial.Items
	}
	status, err := partly(err)
	return results{"status": status, "items": &submitted{statuses: items, done: true}, "operation": "0"}, err
}

func (r *runner) submitted(q *Queue, operation uint64, err error) (results, error) {
	if err != nil {
		return nil, err
	}
	s := &submitted{queue: q, operation: operation}
	r.objects = append(r.objects, s)
	return results{"status": number(StatusOK), "operation": decimal(operation), "items": s}, nil
}
