package drive

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

func TestMQTTByteByByte(t *testing.T) {
	var got []string
	q := mqttReader{func(m publication) {
		got = append(got, fmt.Sprintf("%s|%s|%s|%d", m.topic, m.response, m.correlation, len(m.payload)))
	}}
	c := &conn{loop: &loop{}}
	var stream []byte
	for _, n := range []int{0, 1, 100, 200, 20_000, 70_000} {
		stream = appendPublish(stream, "device/01/0002", "reply/003", "ref", bytes.Repeat([]byte{'p'}, n))
	}
	feed(t, q, c, appendPublish(stream, "a", "", "c", nil))
	want := "[device/01/0002|reply/003|ref|0 device/01/0002|reply/003|ref|1 device/01/0002|reply/003|ref|100 " +
		"device/01/0002|reply/003|ref|200 device/01/0002|reply/003|ref|20000 device/01/0002|reply/003|ref|70000 a||c|0]"
	if fmt.Sprint(got) != want {
		t.Errorf("%s", got)
	}
	for _, bad := range [][]byte{
		{mqttPublish, 0xff, 0xff, 0xff, 0xff, 1},   // a length of five bytes
		{mqttPublish, 0xff, 0xff, 0xff, 0x7f},      // 256 MiB
		{mqttPublish, 1, 0},                        // half a topic length
		{mqttPublish, 3, 0, 5, 'a'},                // a topic that is cut
		{mqttPublish, 4, 0, 1, 'a', 9},             // properties that are cut
		{mqttPublish, 6, 0, 1, 'a', 2, 9, 0},       // correlation data that is cut
		{mqttPublish, 7, 0, 1, 'a', 3, 0x0b, 0, 0}, // a property nobody sent
		{mqttDisconnect, 1, 0x97}, {0x40, 2, 0, 1}, // quota exceeded; a PUBACK
		append([]byte{mqttPublish, 2}, 0xff, 0xff, 10), // topic longer than the packet
	} {
		if used, err := q.read(c, bad); err == nil {
			t.Errorf("%x was taken up to %d", bad, used)
		}
	}
}

// TestMQTTWrongAnswersAreSeen: what a broker could lose, double, change or misroute.
func TestMQTTWrongAnswersAreSeen(t *testing.T) {
	r, _, _ := newBench(ProtoMQTT)
	s := newMQTTSource(r, 0)
	s.conn = &conn{loop: r.loop}
	r.sources = []source{s}
	r.issuing = false
	open := func() publication {
		s.conn.out = s.conn.out[:0]
		r.open(0, int64(time.Millisecond))
		_, body, _, err := cutPacket(s.conn.out)
		if err != nil {
			t.Fatal(err)
		}
		m, err := cutPublication(body)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	asked := open()
	right := publication{topic: asked.response, correlation: bytes.Clone(asked.correlation), payload: r.payload}
	f := func(name string, m publication, want Result) {
		t.Helper()
		s.message(m)
		if got := r.result; got.Commands != want.Commands || got.Stray != want.Stray || got.Corrupt != want.Corrupt {
			t.Errorf("%s: %+v", name, got)
		}
		r.result = Result{}
	}
	elsewhere := right
	elsewhere.topic = []byte("reply/001")
	f("another's topic", elsewhere, Result{Stray: 1})
	f("the answer", right, Result{Commands: 1})
	f("the answer again", right, Result{Stray: 1})
	asked = open()
	f("changed", publication{topic: asked.response, correlation: asked.correlation, payload: []byte("x")}, Result{Commands: 1, Corrupt: 1})

	e := &mqttEdge{run: r, number: 99, conn: &conn{loop: r.loop}, frame: appendPublish(nil, mqttReply, "", refPattern, r.payload)}
	e.message(open())
	if r.result.Corrupt != 1 || len(e.conn.out) != 0 {
		t.Errorf("a command for another edge: %+v", r.result)
	}
}
