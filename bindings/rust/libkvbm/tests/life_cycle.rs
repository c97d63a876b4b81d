// SPDX-License-Identifier: Apache-2.0
//! Blocks of a managed pool through the types, and the blocks returned by each refusal.

mod common;
use common::{world, BLOCK};
use libkvbm::*;

#[test]
fn what_is_written_is_found_and_read_without_a_copy() {
    let w = world(16);
    let keys = w.keys(1, 3);
    let mut blocks = w.manager.allocate(&w.ns, 3).unwrap();
    let mut written = Vec::new();
    for (i, bytes) in blocks.views_mut().unwrap().into_slices().enumerate() {
        assert_eq!(bytes.len(), BLOCK);
        bytes.fill(i as u8 + 1);
        written.push(bytes.as_ptr());
    }
    let registered = blocks.complete_with(&[100, 200, BLOCK as u64]).unwrap().register(&w.ns, &keys).unwrap();
    let found = w.manager.lookup(&w.ns, &keys, &LookupOptions::default()).unwrap();
    assert_eq!((found.hits(), found.count(), found.units()), (3, 3, 3));
    assert!(found
        .items(0..3)
        .unwrap()
        .iter()
        .all(|item| item.tier == Some(TierNumber::HOST) && item.parts_needed == 1));
    let held = found.blocks(0, 0..3).unwrap();
    let views = held.views().unwrap();
    let lengths: Vec<usize> = views.iter().map(<[u8]>::len).collect();
    assert_eq!(lengths, [100, 200, BLOCK]);
    for (i, view) in views.iter().enumerate() {
        assert!(view.iter().all(|b| *b == i as u8 + 1));
        assert_eq!(view.as_ptr(), written[i], "the pool's own memory");
    }
    drop(registered);
    assert_eq!(w.hits(&keys), 3);
}

#[test]
fn a_refused_transition_gives_the_blocks_back() {
    let w = world(16);
    let blocks = w.manager.allocate(&w.ns, 2).unwrap();
    let refused = blocks.complete_with(&[1]).err().unwrap();
    assert_eq!(refused.error.band(), Band::Caller);
    let refused = refused.blocks.complete_with(&[1, BLOCK as u64 + 1]).err().unwrap();
    let complete = refused.blocks.complete().unwrap();
    let refused = complete.register(&w.ns, &w.keys(1, 1)).err().unwrap();
    assert_eq!((refused.error.status(), refused.blocks.len()), (Status::INVALID, 2));
    let other = world(16);
    let refused = refused.blocks.register(&other.ns, &w.keys(1, 2)).err().unwrap();
    assert_eq!(refused.error.status(), Status::FOREIGN);
    assert_eq!(refused.blocks.register(&w.ns, &w.keys(1, 2)).unwrap().len(), 2);
}

#[test]
fn a_registration_that_is_refused_in_part_gives_the_rest_back() {
    let w = world(16);
    let quota = NamespaceOptions {
        model: "small".into(),
        quota_bytes: 1 + 2 * (BLOCK as u64 + 384),
        quota_mode: QuotaMode::Reject,
        ..Default::default()
    };
    let ns = Namespace::open(&w.manager, &quota).unwrap();
    let keys = ns.key_chain(None, &[1, 2, 3, 4], 1).unwrap();
    let kept: Vec<_> = (0..2).map(|_| w.manager.allocate(&ns, 1)).collect();
    // Whether the quota refuses the allocation or a later call, no block is lost: each is held or returned.
    let more = w.manager.allocate(&ns, 2).and_then(|b| {
        let done = b.complete().map_err(Error::from)?.register_with(&ns, &keys[2..], &RegisterOptions::default());
        done.map(|r| (r.blocks.len(), r.refused.len())).map_err(Error::from)
    });
    match more {
        Ok((blocks, refused)) => assert_eq!(blocks + refused, 2),
        Err(error) => assert_eq!(error.band(), Band::NoRoom),
    }
    drop(kept);
    assert_eq!(w.manager.stats().unwrap().holds, 0);
}

#[test]
fn duplicates_are_reused_or_kept_private() {
    let w = world(16);
    let keys = w.keys(1, 1);
    let _first = w.registered(&keys, 1);
    let mut again = w.manager.allocate(&w.ns, 2).unwrap();
    again.views_mut().unwrap().into_slices().for_each(|b| b.fill(2));
    let keep = again.split_off(1);
    let reused = again.complete().unwrap().register_with(&w.ns, &keys, &RegisterOptions::default()).unwrap();
    assert_eq!(reused.item_status, [Status::EXISTS]);
    assert_eq!(reused.blocks.views().unwrap()[0][0], 1);
    let private = RegisterOptions { duplicates: DuplicateMode::Keep, ..Default::default() };
    let kept = keep.complete().unwrap().register_with(&w.ns, &keys, &private).unwrap();
    assert_eq!((kept.item_status[0], kept.blocks.views().unwrap()[0][0]), (Status::EXISTS, 2));
}

#[test]
fn clones_hold_and_weak_references_do_not() {
    let w = world(2);
    let keys = w.keys(1, 2);
    let blocks = w.registered(&keys, 9);
    let clone = blocks.clone();
    assert_eq!(w.manager.stats().unwrap().holds, 4);
    let weak = clone.downgrade().unwrap();
    drop(blocks);
    assert_eq!(w.manager.allocate(&w.ns, 1).err().unwrap().band(), Band::NoRoom);
    assert_eq!(weak.upgrade().unwrap().indices, [0, 1]);
    clone.release().unwrap();
    let allocation = w.manager.allocate_with(&w.ns, 1, 8).unwrap();
    assert_eq!((allocation.n_evicted, allocation.evicted.len()), (1, 1));
    let present = weak.upgrade().unwrap();
    assert_eq!((present.indices.len(), present.blocks.len()), (1, 1));
}

#[test]
fn registered_blocks_are_read_by_many_threads() {
    let w = world(16);
    let blocks = w.registered(&w.keys(1, 8), 5);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mine = blocks.clone();
                assert!(mine.views().unwrap().iter().all(|view| view.iter().all(|b| *b == 5)));
            });
        }
    });
    assert_eq!(w.manager.stats().unwrap().holds, 8);
}

#[test]
fn everything_is_send_and_sync() {
    fn both<T: Send + Sync>() {}
    both::<Context>();
    both::<Geometry>();
    both::<Manager>();
    both::<Namespace>();
    both::<PartialBlocks>();
    both::<CompleteBlocks>();
    both::<RegisteredBlocks>();
    both::<WeakBlocks>();
    both::<Views<'_>>();
    both::<ViewsMut<'_>>();
    both::<Match>();
    both::<Cache>();
    both::<CacheMemory>();
    both::<Guard<'_>>();
    both::<GuardMut<'_>>();
    both::<Queue>();
    both::<Operation>();
    both::<Events>();
    both::<Offer>();
    both::<Session>();
    both::<Error>();
}

#[test]
fn pins_hints_drops_and_resets_reach_the_manager() {
    let w = world(16);
    let keys = w.keys(1, 4);
    drop(w.registered(&keys, 1));
    let part = Part::default();
    w.manager.hint(&w.ns, part, &keys, Priority::Keep).unwrap();
    let (pin, n) = w.manager.pin(&w.ns, part, &keys, 7, None).unwrap().unwrap();
    assert_eq!((n, w.manager.stats().unwrap().pins), (4, 1));
    w.manager.unpin(pin).unwrap();
    assert_eq!(w.manager.unpin(pin).err().unwrap().status(), Status::STALE);
    assert_eq!(w.manager.unpin_owner(7).unwrap(), 0);
    assert!(w.manager.pin(&w.ns, part, &w.keys(99, 1), 7, None).unwrap().is_none());
    assert_eq!(w.manager.scan().map(Result::unwrap).count(), 4);
    assert_eq!(w.manager.drop_keys(&w.ns, part, &keys[3..]).unwrap(), 1);
    assert_eq!(w.hits(&keys), 3);
    w.ns.invalidate().unwrap();
    assert_eq!(w.hits(&keys), 0);
    w.ns.reset().unwrap();
    w.manager.reset().unwrap();
    assert!(w.manager.metrics().unwrap().contains("kvbm"));
    assert!(w.context.config().unwrap().contains("host"));
    assert!(config_reference().unwrap().contains("host.capacity"));
}

#[test]
fn events_tell_what_came_and_went() {
    let w = world(16);
    let events = Events::new(&w.context).unwrap();
    w.manager.subscribe(Some(&events)).unwrap();
    let keys = w.keys(1, 2);
    drop(w.registered(&keys, 1));
    let seen = events.poll(16).unwrap();
    assert_eq!(
        seen.iter().map(|e| (e.kind, e.key)).collect::<Vec<_>>(),
        [(EventKind::Stored, keys[0]), (EventKind::Stored, keys[1])]
    );
    assert_eq!((seen[0].sequence, seen[1].parent, seen[0].namespace_id), (1, Some(keys[0]), w.ns.id()));
    w.manager.subscribe(None).unwrap();
    drop(w.registered(&w.keys(50, 1), 1));
    assert!(events.poll(16).unwrap().is_empty());
}
