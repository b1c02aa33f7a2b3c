package sim

import "subway/core/router"

// bug is a fault between the router and the parties, for tests of the book: what is told
// is told wrongly. The zero value does nothing.
type bug struct {
	message func(l *link, m *message) []*message
	notice  func(n *router.Notice) []*router.Notice
	id      func(n *notice) string
}

// passedOn returns what becomes of a message of the gateway.
func (b *bug) passedOn(l *link, m *message) []*message {
	if b.message != nil {
		return b.message(l, m)
	}
	return []*message{m}
}

// noticed returns what becomes of a notice.
func (b *bug) noticed(n *router.Notice) []*router.Notice {
	if b.notice != nil {
		return b.notice(n)
	}
	return []*router.Notice{n}
}

// callbackID returns the X-Callback-Id of an attempt.
func (b *bug) callbackID(n *notice) string {
	if b.id != nil {
		return b.id(n)
	}
	return n.id
}
