package yardstick

import "testing"

func TestTake(t *testing.T) {
	r, err := Take(-1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if r.User <= 0 || r.Loopback <= 0 || r.UserWall < r.User*0.9 || r.LoopbackWall < r.Loopback*0.9 {
		t.Errorf("%+v", r)
	}
	if _, err := Take(1 << 9); err == nil {
		t.Error("processor 512")
	}
}
