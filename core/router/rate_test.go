package router

import (
	"testing"

	"subway/core/wire"
)

func TestBucket(t *testing.T) {
	const second = wire.Time(1e9)
	var b Bucket
	now := 1000 * second
	for i := range 10 {
		if !b.Take(1, 10, now) {
			t.Fatalf("command %d of a burst of 10 was refused", i+1)
		}
	}
	if b.Take(1, 10, now) {
		t.Fatal("the eleventh was let through")
	}
	if now += second / 10; !b.Take(1, 10, now) {
		t.Fatal("refused although a tenth of a second has passed")
	}
	if b.Take(1, 10, now) {
		t.Fatal("two for one tenth of a second")
	}
	if now += 2 * second; !b.Take(100, 10, now) {
		t.Fatal("a batch above the burst was refused by a full bucket")
	}
	if now += 9 * second; b.Take(1, 10, now) {
		t.Fatal("the batch was not waited for")
	}
	if now += second; !b.Take(1, 10, now) {
		t.Fatal("the batch was waited for too long")
	}
	var slow Bucket
	if !slow.Take(1, 0.5, now) || slow.Take(1, 0.5, now+second) || !slow.Take(1, 0.5, now+2*second) {
		t.Fatal("one command in two seconds")
	}
	if !slow.Take(1000, 0, now) {
		t.Fatal("no rate is no bound")
	}
}
