package router

import (
	"slices"
	"sync"
	"sync/atomic"
)

// backend is one registered lifetime of a Backend's id: it goes with its last session.
type backend struct {
	id      string
	idBytes []byte                  // the same
	session atomic.Pointer[Session] // nil: not connected
}

// backendTable holds the connected Backends. Reads take no lock.
type backendTable struct {
	mu   sync.Mutex // guards writing
	byID sync.Map   // string -> *backend; a handful, nearly only read
	all  atomic.Pointer[[]*backend]
	most int
}

func (t *backendTable) init(most int) {
	t.all.Store(new([]*backend))
	t.most = most
}

// join makes s the session of the Backend with this id, and returns the session that it
// supersedes, if any. Before that it calls welcome, so that nothing that others tell s
// comes first. It reports false, and does nothing, where no more Backends may be there.
func (t *backendTable) join(id string, s *Session, welcome func()) (old *Session, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, known := t.byID.Load(id); known {
		welcome()
		s.backend = v.(*backend)
		return s.backend.session.Swap(s), true
	}
	if len(*t.all.Load()) >= t.most {
		return nil, false
	}
	welcome()
	b := &backend{id: id, idBytes: []byte(id)}
	s.backend = b
	b.session.Store(s)
	t.byID.Store(id, b)
	all := append(slices.Clone(*t.all.Load()), b)
	t.all.Store(&all)
	return nil, true
}

// leave removes b if s is still its session.
func (t *backendTable) leave(b *backend, s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !b.session.CompareAndSwap(s, nil) {
		return
	}
	t.byID.Delete(b.id)
	all := slices.DeleteFunc(slices.Clone(*t.all.Load()), func(x *backend) bool { return x == b })
	t.all.Store(&all)
}

// find returns the session of the Backend with this id, or nil.
func (t *backendTable) find(id string) *Session {
	if v, ok := t.byID.Load(id); ok {
		return v.(*backend).session.Load()
	}
	return nil
}

// sessionOf returns the session to tell b something: its own, or that of a Backend that
// came back with the id.
func (t *backendTable) sessionOf(b *backend) *Session {
	if s := b.session.Load(); s != nil {
		return s
	}
	return t.find(b.id)
}
