/* The boundary between kvbm and a transport: bytes between two processes, and nothing else.
 *
 * Plain C, so that a module built by another compiler can be loaded (ucx_transport/), a built-in one (copy/tcp)
 * and the simulation's network stand behind the same table. No C++ type, exception or memory ownership crosses.
 * Meaning belongs to cluster/: a transport knows peers, small messages and bulk transfers, not keys or blocks.
 *
 * Threads. A transport has no thread of its own that calls back. Every call on one kvbm_transport_t comes from one
 * thread at a time, and every host callback is made inside progress() on that thread, never inside another call. A
 * callback may make any call but close() and progress(). No call blocks.
 *
 * Sleeping. The host polls fd() for input only after arm() said that nothing is waiting, and calls progress() when it
 * is readable, or when the time that arm() gave has passed. An idle transport costs no processor time.
 *
 * Memory. Memory given to post(), push() or get() is borrowed until the token's completion callback; each accepted
 * token gets exactly one. closed() is the last callback of a peer: every token of it has completed before, and
 * nothing of the host's memory is touched for it afterwards. Messages are copied.
 *
 * Order. A connection is ordered and reliable, or it dies. Messages arrive in the order sent; they may overtake pushes,
 * and pushes to different tags may overtake each other. A push that finds no post under its tag is discarded without a
 * report, so the receiver posts first and asks afterwards.
 *
 * Tokens are unique among the unfinished ones of a peer. After disconnect() nothing of that peer is delivered any more;
 * its unfinished tokens end (pushes that a flush still sends end with 0), then closed() follows.
 *
 * Trust. A new peer may send messages of at most KVBM_TRANSPORT_STRANGER_BYTES and no bulk until the host admits it. A
 * peer that breaks this, or sends an invalid frame, is closed with KVBM_TRANSPORT_PROTOCOL. With protect() the bytes
 * that arrive are those that the other side sent, even with an attacker on the path. Without it a transport promises no
 * more than its network does.
 *
 * Statuses are the values of kvbm.h (0, KVBM_ERR_...), given here as int32_t.
 */
#ifndef KVBM_COPY_TRANSPORT_ABI_H
#define KVBM_COPY_TRANSPORT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVBM_TRANSPORT_ABI_VERSION 2u
/* The one symbol that a module exports, a kvbm_transport_entry_fn. */
#define KVBM_TRANSPORT_ENTRY "kvbm_transport_entry"
/* Largest message of a peer that is not yet admitted. */
#define KVBM_TRANSPORT_STRANGER_BYTES 256u
/* Largest message; larger data are bulk. */
#define KVBM_TRANSPORT_MESSAGE_BYTES 65536u
/* Smallest push that hardware places in device memory: smaller ones are copied on their way. */
#define KVBM_TRANSPORT_DEVICE_BYTES 65536u
/* Room for the key of registered memory. */
#define KVBM_TRANSPORT_KEY_BYTES 512u
/* Bytes of each key of protect(). */
#define KVBM_TRANSPORT_PROTECT_KEY_BYTES 32u
/* The peer sent invalid data, or its data were changed on the way: KVBM_ERR_DAMAGED. */
#define KVBM_TRANSPORT_PROTOCOL (-401)

typedef struct kvbm_transport kvbm_transport_t;
/* A connection; never 0, never reused by the same transport. */
typedef uint64_t kvbm_transport_peer_t;
/* The host's name for an operation, returned in its completion. */
typedef uint64_t kvbm_transport_token_t;

/* Features of a transport beyond messages, post() and push(). */
enum {
  KVBM_TRANSPORT_GET = 1, /* add_memory() and get(): one-sided reads without work of the other side's processor */
  /* Addresses may be device memory that add_device_memory() has accepted, and hardware moves the bytes; elsewhere
   * callers stage them. Pieces of one push may be of both kinds, a post is of one. A push of such memory may fail while
   * its connection lives. The CPU never touches it: a post that hardware cannot fill (its sender may lack this feature,
   * or push less than KVBM_TRANSPORT_DEVICE_BYTES) ends with KVBM_ERR_UNSUPPORTED. */
  KVBM_TRANSPORT_DEVICE = 2,
  /* Every peer is a process of this user, as checked with the kernel (KVBM_TRANSPORT_OWN_USER_ONLY was given and
   * works). */
  KVBM_TRANSPORT_OWN_USER = 4,
  /* protect(). Not if hardware moves bulk by itself: such data cannot be tagged. */
  KVBM_TRANSPORT_PROTECT = 8
};

/* Protection of everything that crosses a connection, in both directions. */
enum {
  KVBM_TRANSPORT_AUTHENTICATE = 1, /* changed, repeated, missing or reordered data are detected */
  KVBM_TRANSPORT_ENCRYPT = 2       /* as above, and only sizes and times can be read on the way */
};

/* Flags of kvbm_transport_options_t. A transport refuses a flag that it does not know: KVBM_ERR_UNSUPPORTED. */
enum {
  /* Offer KVBM_TRANSPORT_GET also where the other side's processor does the work (UCX over TCP): for tests. */
  KVBM_TRANSPORT_EMULATE_GET = 1,
  /* Offer KVBM_TRANSPORT_DEVICE where there is no device: host memory replaces it, under the same rules. For tests,
   * with the flag above. */
  KVBM_TRANSPORT_EMULATE_DEVICE = 2,
  /* Peers are processes of this user, on both sides of a connection. Any other peer, and one with an unknown user, ends
   * as closed(KVBM_ERR_PERMISSION) before a message of it is reported. features() then has KVBM_TRANSPORT_OWN_USER. For
   * hosts without a key. */
  KVBM_TRANSPORT_OWN_USER_ONLY = 4
};

typedef struct kvbm_transport_options {
  uint32_t struct_size;
  /* Bytes of messages that may wait for one peer before send() returns KVBM_ERR_AGAIN. */
  uint32_t peer_queue_bytes;
  /* Bulk bytes that may be in flight to one peer at once; more wait inside the transport. */
  uint64_t peer_bulk_bytes;
  /* Comma-separated names of network devices, "all" = all that the transport finds. NULL = loopback only: UCX listens
   * on each of its devices from the start, before any request. */
  const char* devices;
  /* UCX transports ("tcp", "rc"), NULL = all that it finds. */
  const char* transports;
  uint32_t flags;
  uint32_t reserved;
} kvbm_transport_options_t;

/* A part of a push. */
typedef struct kvbm_transport_piece {
  const void* data;
  uint64_t bytes;
} kvbm_transport_piece_t;

/* Callbacks of the host. All pointers stay valid until close() returns; none is NULL but `arrived`. */
typedef struct kvbm_transport_host {
  uint32_t struct_size;
  void* context; /* first argument of each callback */
  /* level as in kvbm.h's KVBM_LOG_*; text is borrowed. The only callback that may come outside progress(). */
  void (*log)(void* context, int32_t level, const char* text);
  /* A peer connected. address is a text for people and logs, borrowed. */
  void (*accepted)(void* context, kvbm_transport_peer_t peer, const char* address);
  /* connect() has succeeded; a failed one is reported by closed() only. */
  void (*connected)(void* context, kvbm_transport_peer_t peer);
  /* A message, whole, in the order sent. bytes is borrowed and aligned to 8. */
  void (*message)(void* context, kvbm_transport_peer_t peer, const void* bytes, size_t size);
  /* A send() that was refused with KVBM_ERR_AGAIN can be repeated. */
  void (*writable)(void* context, kvbm_transport_peer_t peer);
  /* A push has ended: its pieces are the host's again. 0 = sent, which does not mean that it arrived. */
  void (*pushed)(void* context, kvbm_transport_peer_t peer, kvbm_transport_token_t token, int32_t status);
  /* Optional: the first `bytes` bytes of a post or get are in place and will not change. May be skipped. */
  void (*arrived)(void* context, kvbm_transport_peer_t peer, kvbm_transport_token_t token, uint64_t bytes);
  /* A post or get has ended: `bytes` arrived (0 unless status is 0), the memory is the host's again. */
  void (*received)(void* context, kvbm_transport_peer_t peer, kvbm_transport_token_t token, int32_t status,
                   uint64_t bytes);
  /* The connection has ended, or was never made; the last callback of this peer. */
  void (*closed)(void* context, kvbm_transport_peer_t peer, int32_t status, const char* reason);
} kvbm_transport_host_t;

typedef struct kvbm_transport_ops {
  uint32_t struct_size;
  uint32_t abi_version; /* KVBM_TRANSPORT_ABI_VERSION */
  const char* name;     /* "tcp", "ucx" */
  const char* build;    /* library and version in words */

  /* Opens; *out only on success. error is a text for people, at most error_size bytes with its end. */
  int32_t (*open)(const kvbm_transport_options_t* options, const kvbm_transport_host_t* host, kvbm_transport_t** out,
                  char* error, size_t error_size);
  /* Ends everything without further callbacks. All memory is the host's again when it returns. */
  void (*close)(kvbm_transport_t* transport);
  /* KVBM_TRANSPORT_GET and so on. */
  uint32_t (*features)(const kvbm_transport_t* transport);
  /* One line: devices and transports in use. Returns the length without its terminator, as snprintf does. */
  size_t (*describe)(const kvbm_transport_t* transport, char* text, size_t size);

  int (*fd)(const kvbm_transport_t* transport);
  /* 0: sleep until fd() is readable, at most *within_ns (UINT64_MAX = for ever). KVBM_ERR_AGAIN: call progress() first.
   */
  int32_t (*arm)(kvbm_transport_t* transport, uint64_t* within_ns);
  /* Moves data and makes callbacks. Does a bounded amount of work; more than 0 = call again. */
  uint32_t (*progress)(kvbm_transport_t* transport);

  /* address: "host:port", "[v6]:port"; port 0 = any. bound gets the real one, in the same form. */
  int32_t (*listen)(kvbm_transport_t* transport, const char* address, char* bound, size_t bound_size, char* error,
                    size_t error_size);
  /* Starts connecting; ends with connected() or closed(). The host of an address is a number or "localhost": resolving
   * a name may block, so the caller does it. send(), admit(), post() and push() work from here on. */
  int32_t (*connect)(kvbm_transport_t* transport, const char* address, kvbm_transport_peer_t* peer, char* error,
                     size_t error_size);
  /* The peer has proven its identity: messages of any size and bulk from now on, in both directions. Each side decides
   * for itself, so large data may be sent only to a peer that has certainly admitted this side. post() works before. */
  int32_t (*admit)(kvbm_transport_t* transport, kvbm_transport_peer_t peer);
  /* Ends a connection. flush: messages and pushes queued before are sent first, within a few seconds; a second call
   * without flush cuts that short. closed() follows. */
  int32_t (*disconnect)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, int32_t flush);

  /* KVBM_ERR_AGAIN while peer_queue_bytes are waiting: writable() follows. KVBM_ERR_STALE: no such peer, here and in
   * all calls below; KVBM_ERR_CLOSED: disconnect() was called; KVBM_ERR_INVALID: too large, or empty where that is not
   * allowed; KVBM_ERR_STATE: bulk for a peer that is not admitted. */
  int32_t (*send)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, const void* bytes, size_t size);
  /* Names memory for the next push of that peer with that tag; one post per tag, KVBM_ERR_EXISTS for a second one and
   * for a token in use. Ends with received(). A larger push ends it with KVBM_ERR_MISMATCH, and its bytes are
   * discarded, like those of a push without a post for its tag. */
  int32_t (*post)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes,
                  kvbm_transport_token_t token);
  /* Sends pieces, one after the other, into what the peer posted under tag. Ends with pushed(). */
  int32_t (*push)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag,
                  const kvbm_transport_piece_t* pieces, size_t n_pieces, kvbm_transport_token_t token);
  /* Requests the end of a token. A post or get ends with KVBM_ERR_CANCELLED as soon as its memory is safe. So does a
   * push if none of it was sent; otherwise it ends normally. KVBM_ERR_STALE: it has ended. */
  int32_t (*cancel)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, kvbm_transport_token_t token);

  /* With KVBM_TRANSPORT_GET only, else NULL. Another node needs key to read the memory; it has at most
   * KVBM_TRANSPORT_KEY_BYTES. *key_size in: room, out: used. */
  int32_t (*add_memory)(kvbm_transport_t* transport, void* data, uint64_t bytes, uint64_t* memory, void* key,
                        size_t* key_size);
  int32_t (*remove_memory)(kvbm_transport_t* transport, uint64_t memory);
  int32_t (*get)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, void* to, uint64_t remote_address,
                 const void* key, size_t key_size, uint64_t bytes, kvbm_transport_token_t token);

  /* With KVBM_TRANSPORT_DEVICE only, else NULL. KVBM_ERR_UNSUPPORTED: no hardware of this machine reads and writes that
   * memory by itself. remove_memory() ends it. */
  int32_t (*add_device_memory)(kvbm_transport_t* transport, void* data, uint64_t bytes, uint64_t* memory);

  /* With KVBM_TRANSPORT_PROTECT only, else NULL. From this call on all output is protected (messages queued before are
   * sent without), and all input must be: after the message with the callback that calls it, or from the next byte on.
   * Once a peer, after admit() and before the first push: else KVBM_ERR_STATE. how: KVBM_TRANSPORT_AUTHENTICATE or
   * _ENCRYPT, equal on both sides; KVBM_ERR_INVALID for another. Keys have KVBM_TRANSPORT_PROTECT_KEY_BYTES bytes and
   * are copied. Each is used for this connection and direction only: the other side's receive_key is this one's
   * send_key. Bytes with a wrong tag are not reported, and the connection ends with KVBM_TRANSPORT_PROTOCOL. It ends
   * with KVBM_ERR_CLOSED when a key has protected as much as it safely can. */
  int32_t (*protect)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint32_t how, const uint8_t* send_key,
                     const uint8_t* receive_key);
} kvbm_transport_ops_t;

/* Returns NULL, with a text in error, if the module cannot serve a host of that version. The table is static. */
typedef const kvbm_transport_ops_t* (*kvbm_transport_entry_fn)(uint32_t host_abi_version, char* error,
                                                               size_t error_size);

#ifdef __cplusplus
}
#endif

#endif
