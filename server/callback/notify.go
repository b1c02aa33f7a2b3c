package callback

import "fmt"

// Notify takes one notice. It never blocks: what does not fit is dropped when it is
// progress, and a dead letter at once when it is final. The order per request is the
// order of the calls. It may be called with locks held that no Tracker takes.
func (o *Outbox) Notify(n *Notice) {
	t, err := parseURL(n.URL)
	if err != nil { // the poster was told; only an orphan's URL comes unchecked
		o.refuse(n)
		return
	}
	m := newNotice(n, &t)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		o.counts[Refused]++
		if m.final && o.opt.Journal != nil { // it is for the next start
			o.numbers++
			m.number = o.numbers
			o.noteLocked(m)
		}
		return
	}
	if !m.final {
		o.serial++
		m.serial = o.serial
	}
	if o.opt.Journal == nil || !o.holdLocked(m) {
		o.takeInLocked(m, &t)
	}
}

// takeInLocked puts a notice into its lane, or does with it what is done where there is no
// room.
func (o *Outbox) takeInLocked(m *notice, t *target) {
	if full := o.admitLocked(m, t); full != nil {
		o.counts[Full]++
		if m.final {
			o.buryLocked(m, full.Error())
		}
	}
	if m.lane == nil && m.dead == nil { // it is progress that came too late or found no room
		m.free()
	}
}

func (o *Outbox) refuse(n *Notice) {
	if n.Final && n.Track != nil {
		n.Track.SetCallback(Dead, 0)
	}
	o.mu.Lock()
	o.counts[Refused]++
	o.mu.Unlock()
}

// admitLocked puts m at the end of its lane, or says why there is no room.
func (o *Outbox) admitLocked(m *notice, t *target) error {
	h := o.hostLocked(t)
	if h == nil {
		return fmt.Errorf("%d receivers are known, no room for another", o.opt.MaxHosts)
	}
	defer o.settleLocked(h)
	f := h.lanes[string(m.ref())]
	if f != nil && f.final && !m.final {
		o.counts[Late]++
		return nil
	}
	if f != nil && f.state == retrying && !f.notices.head.final {
		o.dropLocked(f.notices.head, Superseded)
	}
	if err := o.makeRoomLocked(h, m); err != nil {
		return err
	}
	f = o.laneLocked(h, m.ref())
	m.lane = f
	f.notices.push(m)
	f.final = f.final || m.final
	if !m.final {
		h.spare.push(m)
	}
	o.addLocked(h, 1, m.size())
	if f.state == resting {
		o.readyLocked(f)
	}
	if h.slow() { // the lane keeps its turn
		for old := f.oldestSpare(); old != nil && old != m; old = f.oldestSpare() {
			o.dropLocked(old, Coalesced)
		}
	}
	return nil
}

// makeRoomLocked lets waiting progress give way to m: the request's own first, then,
// for a final notice, the host's. The error says what is full.
func (o *Outbox) makeRoomLocked(h *host, m *notice) error {
	for {
		full := o.fullLocked(h, m)
		if full == nil {
			return nil
		}
		var victim *notice
		if f := h.lanes[string(m.ref())]; f != nil {
			victim = f.oldestSpare()
		}
		if victim == nil && m.final {
			victim = h.spare.head
		}
		if victim == nil {
			return full
		}
		o.dropLocked(victim, Coalesced)
	}
}

func (o *Outbox) fullLocked(h *host, m *notice) error {
	size := m.size()
	switch f := h.lanes[string(m.ref())]; {
	case h.count >= o.opt.PerHostQueue:
		return fmt.Errorf("%d notices wait for %s, no room for another", h.count, h.to.authority)
	case h.bytes+size > o.opt.PerHostBytes:
		return fmt.Errorf("%d bytes wait for %s, no room for %d more", h.bytes, h.to.authority, size)
	case o.bytes+size > o.opt.MaxBytes:
		return fmt.Errorf("%d bytes of callbacks wait, no room for %d more", o.bytes, size)
	case f != nil && !m.final && f.notices.len >= o.opt.MaxProgress:
		return fmt.Errorf("%d notices of the request wait", f.notices.len)
	}
	return nil
}

// dropLocked forgets a progress that is not under way.
func (o *Outbox) dropLocked(n *notice, why Outcome) {
	f := n.lane
	if f.state == retrying && f.notices.head == n {
		f.stopTimer()
		f.state = resting
	}
	o.counts[why]++
	o.removeLocked(n)
	n.free()
	if f.state == resting && f.notices.head != nil {
		o.readyLocked(f)
	}
}

// removeLocked takes n out of its lane, and the lane out of its host if n was its last.
func (o *Outbox) removeLocked(n *notice) {
	f, h := n.lane, n.lane.host
	f.notices.remove(n)
	h.spare.remove(n)
	n.lane = nil
	o.addLocked(h, -1, -n.size())
	if f.notices.head == nil {
		o.endLaneLocked(f)
	}
}

func (o *Outbox) addLocked(h *host, count, bytes int) {
	h.count += count
	h.bytes += bytes
	o.queued += count
	o.bytes += bytes
	o.checkDrainedLocked()
}

// hostLocked returns the host of a target. A new one may take the place of one without
// work; it is nil when all have some.
func (o *Outbox) hostLocked(t *target) *host {
	var buf [maxHostName + 16]byte
	key := t.appendKey(buf[:0])
	if h := o.hosts[string(key)]; h != nil {
		return h
	}
	if len(o.hosts) >= o.opt.MaxHosts {
		h := o.unused.head
		if h == nil {
			return nil
		}
		o.dropIdleLocked(h)
		o.forgetLocked(h)
	}
	h := newHost(string(key), t, o.opt.PerHostConns)
	o.hosts[h.key] = h
	return h
}

// settleLocked is called when a host may have gained or lost its last lane: one without
// work stays known as long as it has idle connections.
func (o *Outbox) settleLocked(h *host) {
	switch {
	case len(h.lanes) > 0 || h.busy > 0:
		o.unused.remove(h)
	case len(h.idle) == 0:
		o.forgetLocked(h)
	case !h.unusedLink.in:
		o.unused.push(h)
	}
}

func (o *Outbox) forgetLocked(h *host) {
	o.unused.remove(h)
	if o.hosts[h.key] == h {
		delete(o.hosts, h.key)
	}
}
