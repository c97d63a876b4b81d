// SPDX-License-Identifier: Apache-2.0
//! Blocks of an attached cache, coded where they lie.

mod common;
use common::{world, World, BLOCK};
use libkvbm::codec::{self, Mode};
use libkvbm::*;

const BF16: codec::Form = codec::Form { element: Element::Bf16, row_elements: 64, rows: 0 };
const AS_BF16: CodeOptions = CodeOptions { part: 0, form: BF16, stream: None };

/// A cache of eight blocks of bf16 between 0.5 and 1.
fn cache_of(w: &World) -> Cache {
    let cache = w.cache(8);
    for block in 0..8 {
        let mut bytes = cache.block_mut(0, block).unwrap();
        for (i, pair) in bytes.chunks_exact_mut(2).enumerate() {
            pair.copy_from_slice(&[((i * 7 + block as usize) % 128) as u8, 0x3F]);
        }
    }
    cache
}

#[test]
fn blocks_are_coded_as_their_bytes() {
    let w = world(8);
    let cache = cache_of(&w);
    let plain = [cache.block(0, 5).unwrap().to_vec(), cache.block(0, 1).unwrap().to_vec()].concat();
    for mode in [Mode::Off, Mode::Fast, Mode::Default, Mode::Max, Mode::Zstd] {
        let coded = cache.encode(&[5, 1], mode, &AS_BF16).unwrap();
        assert_eq!(coded, codec::encode(&plain, mode, BF16).unwrap(), "{mode}");
    }
    let coded = cache.encode(&[5, 1], Mode::Int8, &AS_BF16).unwrap();
    let mut room = vec![0; cache.code_room(2, &AS_BF16).unwrap()];
    let n = cache.encode_into(&[5, 1], Mode::Int8, &AS_BF16, &mut room).unwrap();
    assert_eq!(room[..n], coded);
    let refused = cache.decode(&coded, &[2, 3], false, &AS_BF16).unwrap_err();
    assert_eq!(refused.status(), Status::PERMISSION, "{refused}");
    cache.decode(&coded, &[2, 3], true, &AS_BF16).unwrap();
    let back = codec::decode(&coded, true).unwrap();
    assert!(back != plain && back[..BLOCK] == cache.block(0, 2).unwrap()[..]);
    assert_eq!(back[BLOCK..], cache.block(0, 3).unwrap()[..]);
}

#[test]
fn what_cannot_be_coded_is_refused_in_words() {
    let w = world(8);
    let cache = cache_of(&w);
    let bytes = CodeOptions::default();
    let refused = |status: Status, says: &str, e: Error| {
        assert!(e.status() == status && e.to_string().contains(says), "{says}: {e}");
    };
    let invalid = |says: &str, ids: &[u32], mode: Mode, given: CodeOptions| {
        refused(Status::INVALID, says, cache.encode(ids, mode, &given).unwrap_err());
    };
    invalid("bytes of no known kind", &[0], Mode::Int8, bytes);
    invalid("block_ids", &[8], Mode::Off, bytes);
    invalid("block_ids", &[NO_BLOCK], Mode::Off, bytes);
    invalid("part", &[0], Mode::Off, CodeOptions { part: 1, ..bytes });
    invalid("stream", &[0], Mode::Off, CodeOptions { stream: Some(Stream::LEGACY), ..bytes });
    refused(Status::NO_ROOM, "are needed", cache.encode_into(&[0], Mode::Off, &bytes, &mut []).unwrap_err());
    let coded = cache.encode(&[0, 1], Mode::Off, &bytes).unwrap();
    refused(Status::INVALID, "blocks", cache.decode(&coded, &[2], false, &bytes).unwrap_err());
    refused(Status::MISMATCH, "", cache.decode(&coded, &[2, 3], false, &AS_BF16).unwrap_err());
    refused(Status::DAMAGED, "", cache.decode(&coded[..coded.len() - 1], &[2, 3], false, &bytes).unwrap_err());
    refused(Status::DAMAGED, "", cache.decode(&[], &[], false, &bytes).unwrap_err());
}

#[test]
fn a_guard_and_coding_exclude_each_other() {
    let w = world(8);
    let cache = cache_of(&w);
    let coded = cache.encode(&[0, 1], Mode::Default, &AS_BF16).unwrap();
    let in_use = |e: Error| assert_eq!(e.status(), Status::IN_USE, "{e}");
    {
        let _written = cache.block_mut(0, 3).unwrap();
        in_use(cache.encode(&[2, 3], Mode::Default, &AS_BF16).unwrap_err());
    }
    {
        let _read = cache.block(0, 3).unwrap();
        cache.encode(&[2, 3], Mode::Default, &AS_BF16).unwrap();
        in_use(cache.decode(&coded, &[2, 3], false, &AS_BF16).unwrap_err());
    }
    in_use(cache.decode(&coded, &[3, 3], false, &AS_BF16).unwrap_err());
    cache.decode(&coded, &[2, 3], false, &AS_BF16).unwrap();
    assert!(cache.block_mut(0, 3).is_ok());
}
