package libvirt

import (
	"context"
	"net"
	"sync"
)

// wire is between a daemon and its clients, and holds the daemon's answers back while it is frozen. The daemon itself
// isn't stopped: libvirtd 9.0 sometimes crashes when it continues after SIGSTOP and clients have left.
type wire struct {
	mutex  sync.Mutex
	thawed chan struct{} // closed by thaw; nil when nothing is frozen
}

func (w *wire) freeze() (thaw func(), err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	thawed := make(chan struct{})
	w.thawed = thawed
	return sync.OnceFunc(func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.thawed = nil
		close(thawed)
	}), nil
}

// through returns a dialer whose connections use the wire.
func (w *wire) through(dial func(context.Context) (net.Conn, error)) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: conn, wire: w, closed: make(chan struct{})}, nil
	}
}

type wireConn struct {
	net.Conn
	wire   *wire
	once   sync.Once
	closed chan struct{}
}

// Read reads from the daemon, and returns when the wire is not frozen.
func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.mutex.Lock()
	thawed := c.wire.thawed
	c.wire.mutex.Unlock()
	if thawed == nil {
		return n, err
	}
	select {
	case <-thawed:
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Close closes the connection, and ends a waiting Read.
func (c *wireConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
