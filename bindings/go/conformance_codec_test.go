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
		coded, err := Encode(raw, CodecMode(a.uint32("mode")), a.form())
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
	steps["cache.code_room"] = func(r *runner, a *arguments) (results, error) {
		n, err := object[*Cache](a, "cache").CodeRoom(a.int("n_blocks"), &CodeOptions{Part: a.int("part"), Form: a.form()})
		return results{"bytes": number(n)}, err
	}
	steps["cache.encode"] = func(r *runner, a *arguments) (results, error) {
		cache, ids, mode := object[*Cache](a, "cache"), each(a, "block_ids", toUint32), CodecMode(a.uint32("mode"))
		var coded []byte
		var err error
		if how := a.codeOptions(); a.get("capacity") != nil {
			var n int
			coded = make([]byte, a.int("capacity"))
			n, err = cache.EncodeInto(coded, ids, mode, how)
			coded = coded[:n]
		} else {
			coded, err = cache.Encode(ids, mode, how)
		}
		return results{"coded": hex.EncodeToString(coded), "n": number(len(coded))}, err
	}
	steps["cache.decode"] = func(r *runner, a *arguments) (results, error) {
		coded := toBytes(a.get("coded"))
		if a.get("coded_bytes") != nil {
			n := a.int("coded_bytes")
			if n > len(coded) {
				throw("coded_bytes is more than there are")
			}
			coded = coded[:n:n]
		}
		return nil, object[*Cache](a, "cache").Decode(coded, each(a, "block_ids", toUint32), a.flag("allow_lossy"),
			a.codeOptions())
	}
}

// form gives what the bytes are that a step codes.
func (a *arguments) form() *CodecForm {
	return &CodecForm{Element(a.uint32("element")), a.uint32("row_elements"), a.uint32("rows")}
}

func (a *arguments) codeOptions() *CodeOptions {
	return &CodeOptions{Part: a.int("part"), Form: a.form(), Stream: a.stream()}
}
