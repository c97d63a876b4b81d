"""AES-256-GCM (FIPS 197, NIST SP 800-38D) and HKDF-SHA256 (RFC 5869) in plain Python: slow, and independent of OpenSSL."""
import hashlib
import hmac
import struct


def _sbox():
    """The inverse in GF(2^8), then the affine map."""
    log, power = {}, []
    value = 1
    for i in range(255):
        log[value] = i
        power.append(value)
        value ^= (value << 1) ^ (0x11B if value & 0x80 else 0)  # times 3
        value &= 0xFF
    box = []
    for x in range(256):
        inverse = power[(255 - log[x]) % 255] if x else 0
        out = 0x63
        for shift in range(5):
            out ^= ((inverse << shift) | (inverse >> (8 - shift))) & 0xFF
        box.append(out)
    return box


SBOX = _sbox()


def _double(x):
    return ((x << 1) ^ (0x1B if x & 0x80 else 0)) & 0xFF


def expand_key(key):
    words = [list(key[i : i + 4]) for i in range(0, 32, 4)]
    rcon = 1
    for i in range(8, 60):
        word = words[-1]
        if i % 8 == 0:
            word = [SBOX[b] for b in word[1:] + word[:1]]
            word[0] ^= rcon
            rcon = _double(rcon)
        elif i % 8 == 4:
            word = [SBOX[b] for b in word]
        words.append([a ^ b for a, b in zip(words[i - 8], word)])
    return [sum(words[i : i + 4], []) for i in range(0, 60, 4)]


def encrypt_block(rounds, block):
    state = [a ^ b for a, b in zip(block, rounds[0])]
    for n, round_key in enumerate(rounds[1:], 1):
        state = [SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if n < 14:
            mixed = []
            for c in range(0, 16, 4):
                a = state[c : c + 4]
                whole = a[0] ^ a[1] ^ a[2] ^ a[3]
                mixed += [a[i] ^ whole ^ _double(a[i] ^ a[(i + 1) % 4]) for i in range(4)]
            state = mixed
        state = [a ^ b for a, b in zip(state, round_key)]
    return bytes(state)


def _multiply(x, y):
    product = 0
    for i in range(127, -1, -1):
        if (y >> i) & 1:
            product ^= x
        x = (x >> 1) ^ (0xE1 << 120 if x & 1 else 0)
    return product


def _ghash(h, aad, text):
    digest = 0
    padded = aad + bytes(-len(aad) % 16) + text + bytes(-len(text) % 16) + struct.pack(">QQ", 8 * len(aad), 8 * len(text))
    for i in range(0, len(padded), 16):
        digest = _multiply(digest ^ int.from_bytes(padded[i : i + 16], "big"), h)
    return digest


def gcm_seal(key, nonce, aad, plain):
    """Ciphertext, then the tag of 16 bytes. The nonce has 12 bytes."""
    rounds = expand_key(key)
    h = int.from_bytes(encrypt_block(rounds, bytes(16)), "big")
    out = bytearray()
    for n in range(0, len(plain), 16):
        stream = encrypt_block(rounds, nonce + struct.pack(">I", 2 + n // 16))
        out += bytes(a ^ b for a, b in zip(plain[n : n + 16], stream))
    tag = _ghash(h, aad, bytes(out)) ^ int.from_bytes(encrypt_block(rounds, nonce + b"\0\0\0\1"), "big")
    return bytes(out) + tag.to_bytes(16, "big")


def hkdf_extract(salt, key):
    return hmac.new(salt, key, hashlib.sha256).digest()


def hkdf_expand(key, info):
    """32 bytes."""
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


# FIPS 197, C.3; "The Galois/Counter Mode of Operation", test cases 14 and 16.
assert encrypt_block(expand_key(bytes(range(32))), bytes.fromhex("00112233445566778899aabbccddeeff")) == bytes.fromhex(
    "8ea2b7ca516745bfeafc49904b496089")
assert gcm_seal(bytes(32), bytes(12), b"", bytes(16)) == bytes.fromhex(
    "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919")
assert gcm_seal(
    bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2), bytes.fromhex("cafebabefacedbaddecaf888"),
    bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
    bytes.fromhex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
                  "b16aedf5aa0de657ba637b39")) == bytes.fromhex(
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9"
    "f66276fc6ece0f4e1768cddf8853bb2d551b")
