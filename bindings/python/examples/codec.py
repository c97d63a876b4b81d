"""Encodes a page of KV, changes a bit of the coded buffer, and gets an error instead of wrong bytes."""
import random

import libkvbm
from libkvbm import codec

TOKENS, HEADS, DIM = 256, 8, 128
numbers = random.Random(1)
page = bytearray(TOKENS * HEADS * DIM * 2)  # [token][head][dim] of bf16
for i in range(0, len(page), 2):
    page[i], page[i + 1] = numbers.randrange(128), 59 + numbers.randrange(3) + 128 * numbers.randrange(2)

coded = codec.encode(page, "default", element=libkvbm.Element.BF16, row=HEADS * DIM)
back = bytearray(codec.inspect(coded).raw_bytes)  # look before room is taken for what comes from elsewhere
codec.decode(coded, into=back)
assert back == page
damaged = bytearray(coded)
damaged[len(damaged) // 2] ^= 1
try:
    codec.decode(damaged)
except libkvbm.MissError as error:
    print(f"{len(page)} bytes as {len(coded)} and back; a changed one: {error.name}")
