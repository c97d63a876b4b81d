// SPDX-License-Identifier: Apache-2.0

package libkvbm

import "encoding/hex"

func init() {
	steps["codec.mode"] = func(r *runner, a *arguments) (results, error) {
		mode, err := ParseCodecMode(a.text("name"))
		return results{"mode": number(mode)}, err
	}
	steps["codec.encode"] = func(r *runner, a *arguments) (results, error) {
		var raw []byte
		if given := a.get("raw"); given != nil {
			raw = toBytes(given)
		} else {
			raw = make([]byte, a.int("bytes"))
			seed := a.uint32("seed")
			for j := range raw {
				raw[j] = patternByte(seed, uint32(j))
			}
		}
		form := &CodecForm{Element(a.uint32("element")), a.uint32("row_elements"), a.uint32("rows")}
		coded, err := Encode(raw, CodecMode(a.uint32("mode")), form)
		return results{"coded": hex.EncodeToString(coded), "n": number(len(coded))}, err
	}
	steps["codec.inspect"] = func(r *runner, a *arguments) (results, error) {
		i, err := Inspect(toBytes(a.get("coded")))
		if err != nil {
			return nil, err
		}
		return results{"mode": number(i.Mode), "element": number(i.Form.Element),
			"row_elements": number(i.Form.RowElements), "rows": number(i.Form.Rows), "lossy": flagOf(i.Lossy),
			"leaves": number(i.Leaves), "raw_leaves": number(i.RawLeaves), "raw_bytes": number(i.RawBytes),
			"coded_bytes": number(i.CodedBytes), "error_ppb": number(i.ErrorPPB)}, nil
	}
	steps["codec.decode"] = func(r *runner, a *arguments) (results, error) {
		raw, err := Decode(toBytes(a.get("coded")), a.flag("allow_lossy"))
		return results{"raw": hex.EncodeToString(raw), "n": number(len(raw))}, err
	}
}
