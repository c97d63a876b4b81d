// SPDX-License-Identifier: Apache-2.0
//! Coding of buffers: the same bytes as in every language, and never wrong ones.

mod common;
use common::BLOCK;
use libkvbm::codec::{self, Form, Mode};
use libkvbm::*;
use serde_json::Value;

const DIM: u32 = 64;
const TOKENS: u32 = 96;
const FORM: Form = Form { element: Element::Bf16, row_elements: DIM, rows: TOKENS };
const LOSSLESS: [Mode; 5] = [Mode::Off, Mode::Fast, Mode::Default, Mode::Max, Mode::Zstd];

/// bf16 as [head][token][dim]: the high halves of floats around zero.
fn page() -> Vec<u8> {
    let mut state = 1u32;
    let mut uniform = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        f64::from(state) / f64::from(u32::MAX) - 0.5
    };
    let value = |_| (((0..12).map(|_| uniform()).sum::<f64>() as f32).to_bits() >> 16) as u16;
    (0..4 * TOKENS * DIM).map(value).flat_map(u16::to_le_bytes).collect()
}

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/vectors/codec.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// The first 32 bits of the fractions of cube roots of primes: FIPS 180-4, 4.2.2.
fn sha256_constants() -> Vec<u32> {
    let primes = (2u32..).filter(|n| (2..*n).all(|d| n % d != 0));
    primes.take(64).map(|p| (f64::from(p).cbrt().fract() * 4294967296.0) as u32).collect()
}

/// FIPS 180-4, 6.2.
fn sha256(bytes: &[u8]) -> String {
    let k = sha256_constants();
    let mut h: [u32; 8] =
        [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    let mut data = bytes.to_vec();
    data.push(0x80);
    while data.len() % 64 != 56 {
        data.push(0);
    }
    data.extend((bytes.len() as u64 * 8).to_be_bytes());
    for chunk in data.chunks(64) {
        let mut w: Vec<u32> = chunk.chunks(4).map(|b| u32::from_be_bytes(b.try_into().unwrap())).collect();
        for i in 16..64 {
            let (a, b) = (w[i - 15], w[i - 2]);
            let a = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
            let b = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
            w.push(w[i - 16].wrapping_add(a).wrapping_add(w[i - 7]).wrapping_add(b));
        }
        let mut s = h;
        for i in 0..64 {
            let one = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
            let chosen = (s[4] & s[5]) ^ (!s[4] & s[6]);
            let one = s[7].wrapping_add(one).wrapping_add(chosen).wrapping_add(k[i]).wrapping_add(w[i]);
            let two = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
            let two = two.wrapping_add((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            s.rotate_right(1);
            s[4] = s[4].wrapping_add(one);
            s[0] = one.wrapping_add(two);
        }
        h.iter_mut().zip(s).for_each(|(h, s)| *h = h.wrapping_add(s));
    }
    h.iter().map(|word| format!("{word:08x}")).collect()
}

#[test]
fn vectors_decode_to_their_bytes() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let vectors = vectors();
    let streams = vectors["streams"].as_array().unwrap();
    assert!(!streams.is_empty());
    for stream in streams {
        let (name, lossy) = (&stream["name"], stream["lossy"].as_bool().unwrap());
        let coded = unhex(&stream["coded"]);
        let info = codec::inspect(&coded).unwrap();
        assert_eq!(info.mode, stream["mode"].as_str().unwrap().parse().unwrap(), "{name}");
        assert_eq!(info.mode.to_string(), stream["mode"].as_str().unwrap());
        assert_eq!(
            (info.form.row_elements, info.form.rows),
            (number(&stream["row"]), number(&stream["rows"])),
            "{name}"
        );
        assert_eq!((info.lossy, info.coded_bytes), (lossy, coded.len() as u64), "{name}");
        assert_eq!(info.raw_bytes, u64::from(number(&stream["raw_bytes"])), "{name}");
        assert_eq!(sha256(&codec::decode(&coded, true).unwrap()), stream["decoded_sha256"].as_str().unwrap(), "{name}");
        if lossy {
            assert_eq!(codec::decode(&coded, false).unwrap_err().status(), Status::PERMISSION, "{name}");
        }
    }
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap() as u32
}

#[test]
fn vectors_that_are_wrong_are_refused() {
    for refused in vectors()["refused"].as_array().unwrap() {
        let error = codec::decode(&unhex(&refused["coded"]), true).unwrap_err();
        assert_eq!(i64::from(error.status().0), refused["status"].as_i64().unwrap(), "{}", refused["name"]);
    }
}

#[test]
fn lossless_modes_give_back_every_bit() {
    let page = page();
    for mode in LOSSLESS {
        let coded = codec::encode(&page, mode, FORM).unwrap();
        assert_eq!(coded.len() < page.len() * 9 / 10, mode != Mode::Off, "{mode}");
        assert_eq!(codec::decode(&coded, false).unwrap(), page, "{mode}");
        let mut room = vec![0; codec::room(page.len(), FORM).unwrap()];
        let n = codec::encode_into(&page, mode, FORM, &mut room).unwrap();
        assert_eq!(room[..n], coded);
        let mut back = vec![0; page.len()];
        assert_eq!(codec::decode_into(&coded, false, &mut back).unwrap(), page.len());
        assert_eq!(back, page);
    }
    let nothing = codec::encode(&[], Mode::Default, Form::default()).unwrap();
    assert!(codec::decode(&nothing, false).unwrap().is_empty());
    assert!(!codec::kernel().is_empty());
}

#[test]
fn lossy_modes_ask_first_and_say_what_they_lost() {
    let coded = codec::encode(&page(), Mode::Int8, FORM).unwrap();
    let info = codec::inspect(&coded).unwrap();
    assert!(info.lossy && info.error_ppb > 0 && info.mode == Mode::Int8 && info.form == FORM);
    let error = codec::decode(&coded, false).unwrap_err();
    assert_eq!((error.status(), error.band()), (Status::PERMISSION, Band::Unavailable));
    assert_eq!(codec::decode(&coded, true).unwrap().len(), page().len());
}

#[test]
fn a_changed_buffer_gives_the_right_bytes_or_none() {
    let page = page();
    let mut coded = codec::encode(&page, Mode::Default, FORM).unwrap();
    let mut refused = 0;
    for i in (0..128).chain((128..coded.len()).step_by(977)) {
        coded[i] ^= 0x24;
        match codec::decode(&coded, false) {
            Ok(raw) => assert!(raw == page, "wrong bytes with byte {i} changed"),
            Err(_) => refused += 1,
        }
        coded[i] ^= 0x24;
    }
    assert!(refused > 50);
    assert_eq!(codec::inspect(&coded[..coded.len() - 1]).unwrap_err().status(), Status::DAMAGED);
    assert_eq!(codec::inspect(&[]).unwrap_err().band(), Band::Miss);
}

#[test]
fn what_does_not_fit_is_refused() {
    let page = page();
    let coded = codec::encode(&page, Mode::Fast, FORM).unwrap();
    let status = |result: Result<usize>| result.unwrap_err().status();
    assert_eq!(status(codec::encode_into(&page, Mode::Fast, FORM, &mut [0; 16])), Status::NO_ROOM);
    assert_eq!(status(codec::decode_into(&coded, false, &mut vec![0; page.len() - 1])), Status::NO_ROOM);
    assert_eq!(status(codec::room(usize::MAX, FORM)), Status::INVALID);
    for name in ["best", "", "max\0"] {
        assert_eq!(name.parse::<Mode>().unwrap_err().status(), Status::INVALID);
    }
    assert!(Mode::try_from(7).is_err());
}

#[test]
fn a_tier_codes_and_a_namespace_says_how() {
    let folder = std::env::temp_dir().join(format!("libkvbm-codec-{}", std::process::id()));
    let tier = |codec: &str| Tier { codec: Some(codec.into()), ..Tier::disk(&folder, 1 << 26) };
    let options = |codec: &str| ManagerOptions {
        block_bytes: BLOCK as u64,
        host_capacity_bytes: 1 << 20,
        tiers: Some(vec![tier(codec)]),
        ..Default::default()
    };
    let w = common::world_of(&[], options("default"));
    w.registered(&w.keys(1, 2), 7);
    w.manager.flush(None).unwrap();
    let stats = w.manager.stats().unwrap();
    assert_eq!((stats.codec.len(), stats.lossy_refused), (2, 0));
    assert!(stats.codec[1].coded + stats.codec[1].left_plain > 0);
    let who = |codec: &str| NamespaceOptions {
        model: "m".into(),
        codec: Some(codec.into()),
        allow_lossy: true,
        ..Default::default()
    };
    Namespace::open(&w.manager, &who("int8")).unwrap();
    assert_eq!(Namespace::open(&w.manager, &who("none such")).err().unwrap().status(), Status::INVALID);
    let (context, manager) = (Context::with_settings([("threads", "1")]).unwrap(), options("none such"));
    drop(w);
    assert_eq!(Manager::new(&context, &manager).err().unwrap().band(), Band::Caller);
    std::fs::remove_dir_all(&folder).unwrap();
}
