package router

import (
	"hash/maphash"
	"math/rand/v2"
)

// What of a Router is up to chance, and is seen from outside: the hashes of requestRefs,
// which say in what order commands end that end at one tick, session ids, and the refs
// that it makes up. With Config.Seed all of it follows from that.

// hashOf returns the hash of a requestRef, which is never 0; its low bits choose the shard.
func (r *Router) hashOf(ref []byte) uint64 {
	if r.cfg.Seed != 0 {
		return seededHash(r.cfg.Seed, ref) | 1<<63
	}
	return maphash.Bytes(r.seed, ref) | 1<<63
}

// seededHash is FNV-1a, begun with a seed and mixed in the end. Who knows the seed can make
// refs collide.
func seededHash(seed uint64, b []byte) uint64 {
	h := seed ^ 14695981039346656037
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return mixed(h)
}

// chance returns a random number. Any goroutine.
func (r *Router) chance() uint64 {
	if r.cfg.Seed == 0 {
		return rand.Uint64()
	}
	return mixed(r.cfg.Seed + r.drawn.Add(1)*0x9e3779b97f4a7c15)
}

// mixed is the end of splitmix64: every bit of x moves every bit of the result.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
