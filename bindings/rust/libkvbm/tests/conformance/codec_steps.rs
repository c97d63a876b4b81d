// SPDX-License-Identifier: Apache-2.0
//! Steps of coding by hand.

use libkvbm::codec::{self, Form, Mode};
use serde_json::json;

use crate::objects::{results, Call, Known};
use crate::value::{hex, pattern, unhex};

fn bytes(call: &Call, name: &str) -> Result<Vec<u8>, String> {
    unhex(&call.text(name).ok_or(format!("no {name}"))?)
}

pub fn codec_step(kind: &str, call: &Call) -> Known {
    match kind {
        "codec.mode" => {
            let mode: Mode = call.text("name").unwrap_or_default().parse()?;
            results(json!({"mode": mode as u32}))
        }
        "codec.encode" => {
            let raw = match call.get("raw") {
                Some(_) => bytes(call, "raw")?,
                None => {
                    let (n, seed) = (call.number("bytes")? as u32, call.number("seed")? as u32);
                    (0..n).map(|j| pattern(seed, j)).collect()
                }
            };
            let form = Form {
                element: call.enumerated("element")?,
                row_elements: call.u32_or("row_elements", 0)?,
                rows: call.u32_or("rows", 0)?,
            };
            let coded = codec::encode(&raw, call.enumerated("mode")?, form)?;
            results(json!({"coded": hex(&coded), "n": coded.len()}))
        }
        "codec.inspect" => {
            let info = codec::inspect(&bytes(call, "coded")?)?;
            results(json!({"mode": info.mode as u32, "element": info.form.element as u32,
                "row_elements": info.form.row_elements, "rows": info.form.rows, "lossy": u32::from(info.lossy),
                "leaves": info.leaves, "raw_leaves": info.raw_leaves, "raw_bytes": info.raw_bytes,
                "coded_bytes": info.coded_bytes, "error_ppb": info.error_ppb}))
        }
        "codec.decode" => {
            let raw = codec::decode(&bytes(call, "coded")?, call.number_or("allow_lossy", 0)? != 0)?;
            results(json!({"raw": hex(&raw), "n": raw.len()}))
        }
        _ => Ok(None),
    }
}
