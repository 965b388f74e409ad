package ops

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// Server serves a handler on a listener. Make it with [Serve].
type Server struct {
	http *http.Server
	done chan struct{}
	err  error
}

// Serve starts to serve on the listener, which it then owns.
func Serve(lis net.Listener, h http.Handler) *Server {
	s := &Server{
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    32 << 10,
			ErrorLog:          log.New(quiet{os.Stderr}, "", 0),
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
		}
	}()
	return s
}

// quiet keeps handshakes that fail out of the log: anybody who looks for open
// ports makes them.
type quiet struct{ io.Writer }

func (q quiet) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		return len(line), nil
	}
	return q.Writer.Write(line)
}

// Done is closed when the server serves no more.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why it ended, nil if it was closed. It is valid after Done.
func (s *Server) Err() error { return s.err }

// Close ends the server: it lets requests finish until the context ends, then
// cuts them. It waits until everything has ended.
func (s *Server) Close(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}
