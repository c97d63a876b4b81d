// SPDX-License-Identifier: Apache-2.0

package libkvbm

import "fmt"

// TierNumber is a tier by its number, which is all that it is to the library. It prints as what it is: "host", "tier 1",
// "no tier".
type TierNumber uint32

// String returns "host", "tier 1" and so on, or "no tier" for NoTier.
func (t TierNumber) String() string {
	switch t {
	case 0:
		return "host"
	case NoTier:
		return "no tier"
	}
	return fmt.Sprintf("tier %d", uint32(t))
}

// String returns the operation's name, "store".
func (o Op) String() string {
	names := map[Op]string{OpStore: "store", OpLoad: "load", OpPrefetch: "prefetch", OpOffload: "offload", OpOffer: "offer",
		OpReceive: "receive", OpLayer: "layer"}
	if name, has := names[o]; has {
		return name
	}
	return fmt.Sprintf("Op(%d)", int32(o))
}

// String returns the event's name, "stored".
func (k EventKind) String() string {
	names := map[EventKind]string{EventStored: "stored", EventRemoved: "removed", EventCleared: "cleared",
		EventDisabled: "disabled"}
	if name, has := names[k]; has {
		return name
	}
	return fmt.Sprintf("EventKind(%d)", int32(k))
}

// shown is the text of an object: what it is, what is known of it, and whether it is closed.
func (h *handle) shown(name, format string, facts ...any) string {
	if h == nil {
		return "libkvbm." + name + "(nil)"
	}
	text := "libkvbm." + name + "(" + fmt.Sprintf(format, facts...)
	if h.closed() {
		if format != "" {
			text += ", "
		}
		text += "closed"
	}
	return text + ")"
}

// String says what it is, and whether it is closed.
func (c *Context) String() string { return c.handle().shown("Context", "") }

// String says what it is, and whether it is closed.
func (m *Manager) String() string { return m.handle().shown("Manager", "") }

// String says what it is, and its id, or that it is closed.
func (n *Namespace) String() string {
	if n == nil {
		return n.handle().shown("Namespace", "")
	}
	id, err := n.ID()
	if err != nil {
		return n.h.shown("Namespace", "")
	}
	return n.h.shown("Namespace", "%v, units %d", id, n.units)
}

// String says what it is, and its fingerprint, or that it is closed.
func (g *Geometry) String() string {
	fingerprint, err := g.Fingerprint()
	if err != nil {
		return g.handle().shown("Geometry", "")
	}
	return g.h.shown("Geometry", "%016x", fingerprint)
}

// String says what it is, and whether it is closed.
func (q *Queue) String() string { return q.handle().shown("Queue", "") }

// String says what it is, and whether it is closed.
func (c *Cache) String() string {
	if c == nil {
		return c.handle().shown("Cache", "")
	}
	return c.h.shown("Cache", "parts %d, units %d", c.parts, c.units)
}

// String says how much hit, and whether it is closed.
func (m *Match) String() string {
	if m == nil {
		return m.handle().shown("Match", "")
	}
	return m.h.shown("Match", "hits %d, units %d", m.hits, m.units)
}

// String says what it is, and whether it is closed.
func (o *Offer) String() string { return o.handle().shown("Offer", "") }

// String says what it is, and whether it is closed.
func (s *Session) String() string { return s.handle().shown("Session", "") }

// String says how many blocks there are.
func (b *Blocks) String() string { return fmt.Sprintf("libkvbm.Blocks(%d)", b.Len()) }

// String says how many references there are.
func (w *WeakBlocks) String() string { return fmt.Sprintf("libkvbm.WeakBlocks(%d)", w.Len()) }
