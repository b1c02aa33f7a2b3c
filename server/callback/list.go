package callback

// link makes its holder a member of a list.
type link[T any] struct {
	prev, next *T
	in         bool
}

// list is an intrusive doubly linked list: no allocation, removal from the middle. at
// says which of a member's links it uses.
type list[T any] struct {
	head, tail *T
	len        int
	at         func(*T) *link[T]
}

// push appends x, which must not be in the list.
func (l *list[T]) push(x *T) {
	k := l.at(x)
	*k = link[T]{prev: l.tail, in: true}
	if l.tail != nil {
		l.at(l.tail).next = x
	} else {
		l.head = x
	}
	l.tail = x
	l.len++
}

// remove takes x out; it does nothing if x is not in the list.
func (l *list[T]) remove(x *T) {
	k := l.at(x)
	if !k.in {
		return
	}
	if k.prev != nil {
		l.at(k.prev).next = k.next
	} else {
		l.head = k.next
	}
	if k.next != nil {
		l.at(k.next).prev = k.prev
	} else {
		l.tail = k.prev
	}
	*k = link[T]{}
	l.len--
}

// pop takes the first member out; nil if there is none.
func (l *list[T]) pop() *T {
	x := l.head
	if x != nil {
		l.remove(x)
	}
	return x
}
