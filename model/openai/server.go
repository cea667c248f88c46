package openai

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds of connections, which a handler cannot enforce.
const (
	headerTimeout  = 10 * time.Second // for the header of a request, from the first connection on
	idleTimeout    = 30 * time.Second // from an answer to the next request
	maxHeaderBytes = 32 << 10
)

// NewServer is a server for a handler of New. It has no timeouts for bodies and
// answers: the handler sets them by its current work. On a listener of Limit it
// reports which connections wait for their clients.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnState: watch, ConnContext: remember,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // mostly clients that leave
	}
}
