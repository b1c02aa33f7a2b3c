package edge

import (
	"testing"

	"subway/server/edge/store"
)

// checkBook holds the sums that an edge keeps against what they are sums of, and the
// stages of commands against where they are.
func checkBook(t testing.TB, e *Edge) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	used, waiting, queued := int64(0), 0, int64(0)
	for ref, x := range e.refs {
		used += x.cost()
		if x.ref != ref {
			t.Errorf("%s is known as %s", x.ref, ref)
		}
		if _, open := e.unconfirmed[x]; open && (x.stage != stageAnswered || x.confirmed) {
			t.Errorf("%s: stage %d, confirmed %v, and waits for confirmation", ref, x.stage, x.confirmed)
		}
		if x.wait != nil {
			waiting++
			queued += int64(len(x.wait.msg))
		}
		if (x.stage == stageQueued || x.stage == stageCommitting) != (x.wait != nil) && x.stage != stageAnswered {
			t.Errorf("%s: stage %d, waiting %v", ref, x.stage, x.wait != nil)
		}
	}
	items := int64(0)
	for _, i := range e.backlog.items {
		items += i.cost()
		if i.kind == store.Status && e.backlog.status[i.device] != i {
			t.Errorf("%s has two status", i.device)
		}
	}
	sessions, inQueues, commits, bytes := 0, 0, 0, int64(0)
	for _, d := range e.devices {
		if d.sess != nil {
			sessions++
		}
		for p := range d.queue {
			for w := d.queue[p].head; w != nil; w = w.next {
				inQueues++
			}
		}
		commits += d.commits
		bytes += d.bytes
	}
	if used+items != e.used || items != e.backlog.bytes {
		t.Errorf("used %d: refs %d, items %d; the backlog says %d", e.used, used, items, e.backlog.bytes)
	}
	if queued > e.queued || bytes != e.queued || inQueues+commits < waiting || sessions != e.connected {
		t.Errorf("queued %d, %d, %d bytes; %d in queues and %d committing of %d; %d sessions of %d", queued, bytes, e.queued, inQueues, commits, waiting, sessions, e.connected)
	}
}
