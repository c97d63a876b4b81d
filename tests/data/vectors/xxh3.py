"""XXH3-64 and XXH3-128 with seed 0, for inputs of 129 bytes and more: what a record's checksum and root hash need.

Written from the XXH3 specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), slowly and plainly.
"""
import struct

M64 = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
MIDDLE = 240  # the longest input that takes the short way


def word(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = (h * 0x165667919E3779F9) & M64
    return h ^ (h >> 32)


def mix16(data, at, secret):
    return fold(word(data, at) ^ word(SECRET, secret), word(data, at + 8) ^ word(SECRET, secret + 8))


def middle64(data):
    size = len(data)
    acc = size * P64_1
    for i in range(8):
        acc += mix16(data, 16 * i, 16 * i)
    acc = avalanche(acc & M64)
    for i in range(8, size // 16):
        acc += mix16(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche((acc + mix16(data, size - 16, 136 - 17)) & M64)


def middle128(data):
    size = len(data)
    low, high = (size * P64_1) & M64, 0

    def mix32(first, second, secret):
        nonlocal low, high
        low = (low + mix16(data, first, secret)) & M64
        low ^= (word(data, second) + word(data, second + 8)) & M64
        high = (high + mix16(data, second, secret + 16)) & M64
        high ^= (word(data, first) + word(data, first + 8)) & M64

    for i in range(4):
        mix32(32 * i, 32 * i + 16, 32 * i)
    low, high = avalanche(low), avalanche(high)
    for i in range(4, size // 32):
        mix32(32 * i, 32 * i + 16, 3 + 32 * (i - 4))
    mix32(size - 16, size - 32, 136 - 17 - 16)
    ends = (low * P64_1 + high * P64_4 + size * P64_2) & M64
    return avalanche((low + high) & M64), -avalanche(ends) & M64


def accumulate(acc, data, at, secret):
    for i in range(8):
        value = word(data, at + 8 * i)
        key = value ^ word(SECRET, secret + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + value) & M64
        acc[i] = (acc[i] + (key & 0xFFFFFFFF) * (key >> 32)) & M64


def long_lanes(data):
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    size = len(data)
    blocks = (size - 1) // 1024
    for stripe in range((size - 1) // 64):
        accumulate(acc, data, 64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15 and stripe // 16 < blocks:
            acc = [((a ^ (a >> 47) ^ word(SECRET, 128 + 8 * i)) * P32_1) & M64 for i, a in enumerate(acc)]
    accumulate(acc, data, size - 64, 128 - 7)
    return acc


def merge(acc, secret, start):
    for i in range(0, 8, 2):
        start += fold(acc[i] ^ word(SECRET, secret + 8 * i), acc[i + 1] ^ word(SECRET, secret + 8 * i + 8))
    return avalanche(start & M64)


def xxh3_64(data):
    assert len(data) > 128
    if len(data) <= MIDDLE:
        return middle64(data)
    return merge(long_lanes(data), 11, (len(data) * P64_1) & M64)


def xxh3_128(data):
    """The low and the high half."""
    assert len(data) > 128
    if len(data) <= MIDDLE:
        return middle128(data)
    acc = long_lanes(data)
    return merge(acc, 11, (len(data) * P64_1) & M64), merge(acc, 192 - 64 - 11, ~(len(data) * P64_2) & M64)
