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
 * and pushes to different tags may overtake each other. A push that finds no post under its tag is thrown away without
 * a word, so the receiver posts first and asks afterwards.
 *
 * Tokens are unique among the unfinished ones of a peer. After disconnect() nothing of that peer is delivered any more;
 * its unfinished tokens end (pushes that a flush brings out end well), then closed() follows.
 *
 * Trust. A new peer may send messages of at most KVBM_TRANSPORT_STRANGER_BYTES and no bulk until the host admits it;
 * a peer that breaks this, or sends a frame that is not one, is closed with KVBM_TRANSPORT_PROTOCOL. With protect() the
 * bytes that arrive are those that the other side sent, whoever is on the path; without it a transport promises no more
 * than its network does.
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
/* What a message of a peer that is not yet admitted may have at most. */
#define KVBM_TRANSPORT_STRANGER_BYTES 256u
/* What any message may have at most; larger things are bulk. */
#define KVBM_TRANSPORT_MESSAGE_BYTES 65536u
/* What goes into device memory is pushed in at least so many bytes: smaller pushes are copied on their way. */
#define KVBM_TRANSPORT_DEVICE_BYTES 65536u
/* Room for the key of registered memory. */
#define KVBM_TRANSPORT_KEY_BYTES 512u
/* Bytes of each key of protect(). */
#define KVBM_TRANSPORT_PROTECT_KEY_BYTES 32u
/* The peer sent what no peer sends, or what it sent was changed on its way: KVBM_ERR_DAMAGED. */
#define KVBM_TRANSPORT_PROTOCOL (-401)

typedef struct kvbm_transport kvbm_transport_t;
/* A connection; never 0, never used again by the same transport. */
typedef uint64_t kvbm_transport_peer_t;
/* The host's name for an operation, given back in its completion. */
typedef uint64_t kvbm_transport_token_t;

/* What a transport can do beyond messages, post() and push(). */
enum {
  KVBM_TRANSPORT_GET = 1, /* add_memory() and get(): one-sided reads that the other side's processor takes no part in */
  /* Addresses may be device memory that add_device_memory() has taken, which hardware moves; elsewhere callers stage it.
   * Pieces of one push may be of both kinds, what is posted is of one. A push of such memory may fail and its connection
   * live. The CPU never touches it: a post that hardware cannot fill (its sender may lack that way, or push less than
   * KVBM_TRANSPORT_DEVICE_BYTES) ends with KVBM_ERR_UNSUPPORTED. */
  KVBM_TRANSPORT_DEVICE = 2,
  /* Every peer is a process of this user, as the kernel says (KVBM_TRANSPORT_OWN_USER_ONLY was given and is kept). */
  KVBM_TRANSPORT_OWN_USER = 4,
  /* protect(). Not where hardware moves bulk by itself: nothing can be tagged on that way. */
  KVBM_TRANSPORT_PROTECT = 8
};

/* What protect() does to everything that crosses a connection, in both directions. */
enum {
  KVBM_TRANSPORT_AUTHENTICATE = 1, /* what was changed, repeated, left out or moved on its way is noticed */
  KVBM_TRANSPORT_ENCRYPT = 2       /* and messages and bulk cannot be read on the way; sizes and times can */
};

/* Flags of kvbm_transport_options_t. A transport refuses a flag that it does not know: KVBM_ERR_UNSUPPORTED. */
enum {
  /* Offer KVBM_TRANSPORT_GET also where the other side's processor does the work (UCX over TCP): for tests. */
  KVBM_TRANSPORT_EMULATE_GET = 1,
  /* Offer KVBM_TRANSPORT_DEVICE where there is no device: memory of the host plays its part, under the same rules. For
   * tests, with the flag above. */
  KVBM_TRANSPORT_EMULATE_DEVICE = 2,
  /* Peers are processes of this user, on both sides of a connection. Any other, and one of which that cannot be found
   * out, ends as closed(KVBM_ERR_PERMISSION) before a message of it is told; features() then has
   * KVBM_TRANSPORT_OWN_USER. For hosts that have no key. */
  KVBM_TRANSPORT_OWN_USER_ONLY = 4
};

typedef struct kvbm_transport_options {
  uint32_t struct_size;
  /* Bytes of messages that may wait for one peer before send() says KVBM_ERR_AGAIN. */
  uint32_t peer_queue_bytes;
  /* Bulk bytes that may be on their way to one peer at once; what is above waits its turn inside. */
  uint64_t peer_bulk_bytes;
  /* Comma-separated names of network devices, "all" = what the transport finds. NULL = loopback alone: UCX listens on
   * each of its devices from the start, before anybody has asked for it. */
  const char* devices;
  /* UCX transports ("tcp", "rc"), NULL = what it finds. */
  const char* transports;
  uint32_t flags;
  uint32_t reserved;
} kvbm_transport_options_t;

/* A part of what push() sends. */
typedef struct kvbm_transport_piece {
  const void* data;
  uint64_t bytes;
} kvbm_transport_piece_t;

/* What the host provides. All pointers stay valid until close() returns; none is NULL but `arrived`. */
typedef struct kvbm_transport_host {
  uint32_t struct_size;
  void* context; /* first argument of each callback */
  /* level as in kvbm.h's KVBM_LOG_*; text is borrowed. The only callback that may come outside progress(). */
  void (*log)(void* context, int32_t level, const char* text);
  /* Somebody connected. address is a text for people and logs, borrowed. */
  void (*accepted)(void* context, kvbm_transport_peer_t peer, const char* address);
  /* connect() has ended well; a failed one is reported by closed() alone. */
  void (*connected)(void* context, kvbm_transport_peer_t peer);
  /* A message, whole, in the order sent. bytes is borrowed and aligned to 8. */
  void (*message)(void* context, kvbm_transport_peer_t peer, const void* bytes, size_t size);
  /* send() that was refused with KVBM_ERR_AGAIN can be tried again. */
  void (*writable)(void* context, kvbm_transport_peer_t peer);
  /* A push has ended: its pieces are the host's again. 0 = on its way, which does not say that it arrived. */
  void (*pushed)(void* context, kvbm_transport_peer_t peer, kvbm_transport_token_t token, int32_t status);
  /* Optional: the first `bytes` bytes of a post or get are in place and will not change. May be skipped. */
  void (*arrived)(void* context, kvbm_transport_peer_t peer, kvbm_transport_token_t token, uint64_t bytes);
  /* A post or get has ended: `bytes` came (0 unless status is 0), the memory is the host's again. */
  void (*received)(void* context, kvbm_transport_peer_t peer, kvbm_transport_token_t token, int32_t status,
                   uint64_t bytes);
  /* The connection is gone, or never came to be; the last callback of this peer. */
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
  /* One line: devices and transports in use. Gives the length without its end, as snprintf does. */
  size_t (*describe)(const kvbm_transport_t* transport, char* text, size_t size);

  int (*fd)(const kvbm_transport_t* transport);
  /* 0: sleep until fd() is readable, at most *within_ns (UINT64_MAX = for ever). KVBM_ERR_AGAIN: call progress() first.
   */
  int32_t (*arm)(kvbm_transport_t* transport, uint64_t* within_ns);
  /* Moves what can be moved and makes callbacks. Does a bounded amount of work; more than 0 = call again. */
  uint32_t (*progress)(kvbm_transport_t* transport);

  /* address: "host:port", "[v6]:port"; port 0 = any. bound gets the real one, in the same form. */
  int32_t (*listen)(kvbm_transport_t* transport, const char* address, char* bound, size_t bound_size, char* error,
                    size_t error_size);
  /* Starts connecting; ends with connected() or closed(). The host of an address is a number or "localhost": finding
   * out what a name stands for may block and is done above. send(), admit(), post() and push() work from here on. */
  int32_t (*connect)(kvbm_transport_t* transport, const char* address, kvbm_transport_peer_t* peer, char* error,
                     size_t error_size);
  /* The peer has proven who it is: messages of any size and bulk from now on, in both directions. Each side judges for
   * itself: what is large goes to a peer only once it is known to have admitted this side. post() works before. */
  int32_t (*admit)(kvbm_transport_t* transport, kvbm_transport_peer_t peer);
  /* Ends a connection. flush: what was sent and pushed before goes out first, within a few seconds; a second call
   * without flush cuts that short. closed() follows. */
  int32_t (*disconnect)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, int32_t flush);

  /* KVBM_ERR_AGAIN while peer_queue_bytes are waiting: writable() follows. KVBM_ERR_STALE: no such peer, here and in
   * all calls below; KVBM_ERR_CLOSED: disconnect() was called; KVBM_ERR_INVALID: larger than may be sent, or nothing
   * where something has to be; KVBM_ERR_STATE: bulk for a peer that is not admitted. */
  int32_t (*send)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, const void* bytes, size_t size);
  /* Names memory for the next push of that peer with that tag; one post per tag, KVBM_ERR_EXISTS for a second one and
   * for a token in use. Ends with received(). A push larger
   * than this ends it with KVBM_ERR_MISMATCH, and its bytes are thrown away; so is a push whose tag is not posted. */
  int32_t (*post)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes,
                  kvbm_transport_token_t token);
  /* Sends pieces, one after the other, into what the peer posted under tag. Ends with pushed(). */
  int32_t (*push)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag,
                  const kvbm_transport_piece_t* pieces, size_t n_pieces, kvbm_transport_token_t token);
  /* Asks a token to end. A post or get ends with KVBM_ERR_CANCELLED as soon as its memory is safe; a push ends so if
   * nothing of it was sent, else as it would. KVBM_ERR_STALE: it has ended. */
  int32_t (*cancel)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, kvbm_transport_token_t token);

  /* With KVBM_TRANSPORT_GET only, else NULL. key is what another node needs to read it, KVBM_TRANSPORT_KEY_BYTES long
   * at most; *key_size in: room, out: used. */
  int32_t (*add_memory)(kvbm_transport_t* transport, void* data, uint64_t bytes, uint64_t* memory, void* key,
                        size_t* key_size);
  int32_t (*remove_memory)(kvbm_transport_t* transport, uint64_t memory);
  int32_t (*get)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, void* to, uint64_t remote_address,
                 const void* key, size_t key_size, uint64_t bytes, kvbm_transport_token_t token);

  /* With KVBM_TRANSPORT_DEVICE only, else NULL. KVBM_ERR_UNSUPPORTED: no hardware of this machine reads and writes that
   * memory by itself. remove_memory() ends it. */
  int32_t (*add_device_memory)(kvbm_transport_t* transport, void* data, uint64_t bytes, uint64_t* memory);

  /* With KVBM_TRANSPORT_PROTECT only, else NULL. From this call on all that is sent is protected (what was sent before
   * goes out as it is), and all that arrives has to be: after the message whose callback calls it, or from the next byte
   * on. Once a peer, after admit() and before anything is pushed: KVBM_ERR_STATE. how: KVBM_TRANSPORT_AUTHENTICATE or
   * _ENCRYPT, the same on both sides; KVBM_ERR_INVALID for another. Keys have KVBM_TRANSPORT_PROTECT_KEY_BYTES bytes, are
   * copied, and of this connection and direction alone: the other side's receive_key is this one's send_key. Nothing is
   * told of bytes whose tag does not fit: the connection ends with KVBM_TRANSPORT_PROTOCOL; with KVBM_ERR_CLOSED when a
   * key has covered as much as it safely can. */
  int32_t (*protect)(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint32_t how, const uint8_t* send_key,
                     const uint8_t* receive_key);
} kvbm_transport_ops_t;

/* NULL, with a text in error, where the module cannot serve a host of that version. The table is static. */
typedef const kvbm_transport_ops_t* (*kvbm_transport_entry_fn)(uint32_t host_abi_version, char* error,
                                                               size_t error_size);

#ifdef __cplusplus
}
#endif

#endif
