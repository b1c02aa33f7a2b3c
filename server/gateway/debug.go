package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// Bounds of the rates of the block and mutex profiles: the runtime takes any int.
const (
	blockRateMax     = 1_000_000_000 // ns blocked per sample
	mutexFractionMax = 1_000_000     // contentions per sample
)

// Debug is a port for profiles (net/http/pprof), on loopback only and apart from the
// Gateway's own. Two calls go beyond net/http/pprof; both act on the whole process:
//
//	POST /debug/rates?block=NS&mutex=N   rates of the block and mutex profiles, 0: off, as at the start
//	POST /debug/free                     collect garbage and give free memory back to the system
type Debug struct {
	server   *http.Server
	listener net.Listener
}

// ListenDebug opens the port.
func ListenDebug(addr string) (*Debug, error) {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("debug address %q must be a loopback address with a port", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("POST /debug/rates", setRates)
	mux.HandleFunc("POST /debug/free", func(http.ResponseWriter, *http.Request) { debug.FreeOSMemory() })
	d := &Debug{server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener: l}
	go func() { _ = d.server.Serve(l) }()
	return d, nil
}

// setRates sets the rates that are named; without one the runtime records no blocking and
// no contention, and their profiles are empty.
func setRates(w http.ResponseWriter, r *http.Request) {
	block, okBlock, err := rate(r, "block", blockRateMax)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	mutex, okMutex, err := rate(r, "mutex", mutexFractionMax)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if okBlock {
		runtime.SetBlockProfileRate(block)
	}
	if okMutex {
		runtime.SetMutexProfileFraction(mutex)
	}
}

// rate reads a parameter of the query; ok is false where it is absent.
func rate(r *http.Request, name string, most int) (value int, ok bool, err error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, false, nil
	}
	value, err = strconv.Atoi(text)
	if err != nil || value < 0 || value > most {
		return 0, false, fmt.Errorf("%s must be an integer from 0 to %d", name, most)
	}
	return value, true, nil
}

// Close ends the port.
func (d *Debug) Close() {
	if d != nil {
		_ = d.server.Close()
	}
}
