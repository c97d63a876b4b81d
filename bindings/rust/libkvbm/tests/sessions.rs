// SPDX-License-Identifier: Apache-2.0
//! Prefill to decode between two managers of this process, with memory that the caches own: what may be touched when.

mod common;
use common::{world_of, World};
use libkvbm::*;
use std::time::Duration;

const LAYERS: u32 = 3;
const LAYER_BYTES: usize = 2 * 4 * 16 * 2 * 8 * 2;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

struct Side {
    w: World,
    cache: Cache,
}

fn side(setting: (&str, &str), form: Form) -> Side {
    let options =
        ManagerOptions { block_bytes: 65536, host_capacity_bytes: 1 << 20, tiers: Some(vec![]), ..Default::default() };
    let w = world_of(&[("node.pool", "rust"), setting], options);
    let part = Component { element: Element::Bf16, layers: LAYERS, heads: 2, head_dim: 8, ..Default::default() };
    let geometry = Geometry::new(16, 1, &[part]).unwrap();
    let who = NamespaceOptions { model: "m".into(), geometry: Some(geometry), ..Default::default() };
    let ns = Namespace::open(&w.manager, &who).unwrap();
    let part = PartLayout { part: Part::default(), form, tensor_bytes: vec![LAYER_BYTES; LAYERS as usize] };
    let cache = Cache::attach(&w.manager, &ns, CacheMemory::new(4, &[part]).unwrap()).unwrap();
    Side { w, cache }
}

fn pair() -> (Side, Side, Source) {
    let prefill = side(("node.listen", "127.0.0.1:0"), Form::BlocksNhd);
    let node = prefill.w.manager.node_address().unwrap();
    let decode = side(("node.peers", &node), Form::BlocksHnd);
    (prefill, decode, Source { node, rank: 0 })
}

fn locked<T>(result: Result<T>) {
    assert_eq!(result.err().unwrap().status(), Status::IN_USE);
}

#[test]
fn layers_are_free_to_read_as_they_come_and_locked_until_then() {
    let (prefill, decode, source) = pair();
    let request = RequestId(*b"rust request 001");
    let wanted = SessionOptions { timeout: PATIENCE, ..Default::default() };
    let session = Session::open(&decode.cache, request, &[3, 1], &[source], &wanted, None).unwrap();
    let offer = Offer::open(&prefill.cache, request, &[0, 2], &OfferOptions::default(), None).unwrap();
    locked(decode.cache.block(0, 3));
    assert!(decode.cache.block(0, 0).is_ok());
    assert_eq!(session.wait_layer(0, 0, Some(Duration::ZERO)).err().unwrap().status(), Status::AGAIN);
    for layer in 0..LAYERS {
        let tensor = layer as usize;
        prefill.cache.block_mut(tensor, 0).unwrap().fill(layer as u8 + 1);
        prefill.cache.block_mut(tensor, 2).unwrap().fill(layer as u8 + 101);
        offer.publish(0, layer, 1, 0, 0).unwrap();
        session.wait_layer(0, layer, PATIENCE).unwrap();
        assert!(decode.cache.block(tensor, 3).unwrap().iter().all(|b| *b == layer as u8 + 1));
        assert!(decode.cache.block(tensor, 1).unwrap().iter().all(|b| *b == layer as u8 + 101));
        if layer + 1 < LAYERS {
            locked(prefill.cache.block_mut(tensor, 2));
            locked(decode.cache.block(tensor + 1, 3));
            assert!(prefill.cache.block_mut(tensor + 1, 2).is_ok());
        }
    }
    session.wait(PATIENCE).unwrap();
    offer.wait(PATIENCE).unwrap();
    assert!(prefill.cache.tensor_mut(0).is_ok() && decode.cache.tensor_mut(0).is_ok());
    assert_eq!(session.abort("late").err().unwrap().status(), Status::STALE);
}

#[test]
fn a_dropped_session_and_offer_end_and_free_their_blocks() {
    let (prefill, decode, source) = pair();
    let request = RequestId(*b"rust request 002");
    let wanted = SessionOptions { timeout: PATIENCE, ..Default::default() };
    let session = Session::open(&decode.cache, request, &[3, 1], &[source], &wanted, None).unwrap();
    let offer = Offer::open(&prefill.cache, request, &[0, 2], &OfferOptions::default(), None).unwrap();
    offer.publish(0, 0, 1, 0, 16).unwrap();
    locked(prefill.cache.block_mut(0, 0));
    assert!(prefill.cache.block_mut(0, 2).is_ok(), "its positions were not published");
    let again = Offer::open(&prefill.cache, request, &[0, 2], &OfferOptions::default(), None);
    assert_eq!(again.err().unwrap().status(), Status::EXISTS);
    drop((session, offer));
    assert!(prefill.cache.tensor_mut(0).is_ok() && decode.cache.tensor_mut(0).is_ok());
}

#[cfg(feature = "tokio")]
#[test]
fn layers_come_as_futures() {
    let (prefill, decode, source) = pair();
    let request = RequestId(*b"rust request 003");
    let wanted = SessionOptions { timeout: PATIENCE, ..Default::default() };
    let queue = Queue::new(&decode.w.context, 8).unwrap();
    let offers = Queue::new(&prefill.w.context, 8).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _driver = Driver::spawn(&queue).unwrap();
        let mut session = Session::open(&decode.cache, request, &[3, 1], &[source], &wanted, Some(&queue)).unwrap();
        let mut offer = Offer::open(&prefill.cache, request, &[0, 2], &OfferOptions::default(), Some(&offers)).unwrap();
        offer.publish_all().unwrap();
        let mut layers = Vec::new();
        while let Some(layer) = session.next_layer().await.unwrap() {
            assert!(decode.cache.block(layer.layer as usize, 3).is_ok());
            layers.push(layer.layer);
        }
        layers.sort_unstable();
        assert_eq!(layers, [0, 1, 2]);
        let done = session.ended().await.unwrap();
        assert_eq!((done.op, done.status, done.items_done), (OpKind::Receive, Status::OK, u64::from(LAYERS)));
        assert_eq!(offer.ended().await.unwrap().status, Status::OK);
    });
    assert!(prefill.cache.tensor_mut(0).is_ok() && decode.cache.tensor_mut(0).is_ok());
}

#[test]
fn what_is_in_host_memory_waits_for_no_stream() {
    let (prefill, decode, source) = pair();
    let request = RequestId(*b"rust request 0st");
    let offer = Offer::open(&prefill.cache, request, &[0, 2], &OfferOptions::default(), None).unwrap();
    let refused = offer.publish_on_stream(0, 0, 1, 0, 0, Stream::LEGACY).unwrap_err();
    assert_eq!(refused.status(), Status::INVALID);
    let wanted = SessionOptions { stream: Some(Stream::LEGACY), ..Default::default() };
    let refused = Session::open(&decode.cache, request, &[3, 1], &[source], &wanted, None).err().unwrap();
    assert_eq!(refused.status(), Status::INVALID);
    // Nothing is claimed by what was refused.
    assert!(decode.cache.block_mut(0, 3).is_ok());
}
